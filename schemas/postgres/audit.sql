-- The moderation log as a table, written by `maxboard audit --to-postgres`; repeatable.
--
-- One row an event of the topic, found again by topic id, partition and offset: writing it twice changes nothing.
-- The position is stored in the transaction that writes the rows before it, so a restart neither misses nor repeats.
-- PostgreSQL holds no NUL in text: it is stored as U+FFFD; `record` has the bytes of the event as they are.
-- Times are those of the log; `until` after 9999 or before year 1 cannot occur.

CREATE TABLE IF NOT EXISTS moderation_events (
    topic_id    text        NOT NULL,
    "partition" integer     NOT NULL,
    "offset"    bigint      NOT NULL,
    recorded_at timestamptz NOT NULL,             -- the broker's append time: what erasures go by
    event_id    text        NOT NULL,
    type        text        NOT NULL CHECK (type IN ('ban', 'unban', 'erase', 'accept', 'reject')),
    player_id   text        NOT NULL,
    run_id      text,
    kind        text        CHECK (kind IN ('ban', 'shadow')),
    until       timestamptz,                      -- of a ban; null: it does not end by itself
    ends        text,                             -- of an unban that was due: the event_id of the ban that it lifts
    actor       text        NOT NULL,
    reason      text        NOT NULL,
    at          timestamptz NOT NULL,             -- the clock of who decided
    record      bytea       NOT NULL,             -- the event, JSON in UTF-8
    PRIMARY KEY (topic_id, "partition", "offset")
);

CREATE INDEX IF NOT EXISTS moderation_events_player ON moderation_events (player_id, "offset");
CREATE INDEX IF NOT EXISTS moderation_events_run ON moderation_events (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS moderation_events_recorded ON moderation_events (recorded_at);

-- One row: which topic this is, and the next offset to read. Another topic is refused, as its offsets mean others.
CREATE TABLE IF NOT EXISTS moderation_position (
    only_one    boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    topic_id    text    NOT NULL,
    "partition" integer NOT NULL,
    next_offset bigint  NOT NULL
);

-- Players who are hidden: the newest ban of a player replaces the older ones; an unban that names a ban lifts that one.
CREATE OR REPLACE VIEW moderation_bans AS
SELECT ban.player_id, ban.kind, ban.recorded_at AS since, ban.until, ban.actor, ban.reason, ban.event_id, ban."offset"
FROM moderation_events AS ban
WHERE ban.type = 'ban'
  AND NOT EXISTS (
      SELECT FROM moderation_events AS later
      WHERE later.player_id = ban.player_id
        AND later."offset" > ban."offset"
        AND (later.type = 'ban'
             OR (later.type = 'unban' AND (later.ends IS NULL OR later.ends = ban.event_id)))
  );

-- The word on each run that has one: a reject outranks any accept, before or after it.
CREATE OR REPLACE VIEW moderation_verdicts AS
SELECT DISTINCT ON (player_id, run_id)
    player_id, run_id, type AS verdict, recorded_at, actor, reason, event_id, "offset"
FROM moderation_events
WHERE type IN ('accept', 'reject')
ORDER BY player_id, run_id, (type = 'reject') DESC, "offset";

-- Erased players: runs recorded before that moment do not count, whatever a verdict says.
CREATE OR REPLACE VIEW moderation_erasures AS
SELECT player_id, max(recorded_at) AS erased_before
FROM moderation_events
WHERE type = 'erase'
GROUP BY player_id;
