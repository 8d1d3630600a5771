-- Apply one offset range of one partition to all boards of this primary, in one atomic step.
--
-- KEYS
--   1  log       hash: topic ids, number of partitions, verdicts; a field a partition: "position time caught_up target"
--   2  boards    hash: reference -> "epoch start expires status build loaded"; "@name" -> "digest whole_from"; "@" -> digest
--   3  hidden    hash: hidden player -> kind and ban event
--   4  announce  hash: "reference|player" -> "composite rank_before before", what submits leave for the rank changes
--   5… one sorted set a board: player -> composite; side keys are this and ":shadow", ":pending"; those of a build
--      that the registry names are this and ":build", ":build:shadow", ":build:pending"
-- ARGV
--   1  definitions  digest of all board definitions that the sender has for this primary
--   2  source       field of the partition in log, "runs:3"; "" for a submit: then 3 to 8, 10 and 11 do not count
--   3  topic        id of the topic
--   4  partitions   how many partitions the topic has
--   5  from         offset of the range's first record
--   6  to           offset after its last
--   7  end          end of the partition as the sender saw it
--   8  first        1: no board of this primary needs a record before `from`; more: so it is, if every definition is
--                   whole from this moment on only (epoch ms, see accept_log "short"); 0: neither
--   9  judged       moderation position at which the runs were judged
--   10 time         record time of the last record, epoch ms; 0: no record
--   11 caught_up    when `to` was the end of the partition, epoch ms; 0: it was not
--   12 now          the sender's clock, epoch ms: only for keys whose expiry has passed
--   13 boards       how many follow, in the order of KEYS; each:
--        start expires runs held, then runs x (player composite), held x (player|run_id composite)
-- Reply: {status, position, moderation, verdicts, live, then each board}
--   status      0 applied, 1 refused, 2 other definitions, 3 other topic; only with 0 anything but a target was written
--   position    stored position of the partition (status 3: the topic id known here; 2: the digest); -1: none
--   moderation  stored moderation position, -1: none
--   verdicts    offset after the last accept, reject or erase
--   live        1: no partition is missing or below its target
--   a board: {state, epoch, hidden, then (index changed rank previous_rank previous) of each run that is the best now,
--     also of a hidden player, then (index 0 0 0 "")}
--     state 0 taken, 1 needs rebuild, 2 expired; hidden: list of the indexes of runs that went to the shadow
--     index from 1; changed 1: a new best; ranks from 1, 0: was not there; previous: composite text, "": none
--     of a submit: (index changed rank previous_rank previous best) of every run, best: the composite that is the
--     player's now; of a hidden player rank 0, best as in the shadow
-- Composites go to commands as the text they came as; numbers here are only compared, exact below 2^53.

local LIVE, EMPTY, NEEDS_REBUILD = 'live', 'empty', 'needs-rebuild'
local SKEW = 60000 -- ms by which the sender's clock may differ from the one that expires keys
local CHUNK = 2000 -- values given to one command: the server's Lua stack holds 8,000

local ANNOUNCE = 86400000 -- ms that what a submit left is kept: its run is in the log, and read long before

local log_key, boards_key, hidden_key, announce_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local source = ARGV[2]
local from, to, log_end = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local judged, time, caught_up, now = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local prefix_length = #log_key - #'log'

local log = {}
local flat = redis.call('HGETALL', log_key)
for i = 1, #flat, 2 do log[flat[i]] = flat[i + 1] end

local function partition_entry(field)
  local position, at, seen, target = string.match(log[field] or '- 0 0 0', '^(%S+) (%d+) (%d+) (%d+)$')
  return tonumber(position), tonumber(at), tonumber(seen), tonumber(target)
end

local position, stored_time, stored_caught_up, target = partition_entry(source)
local moderation, _, _, moderation_target = partition_entry('moderation')
local verdicts = tonumber(log.verdicts or '0')

local function head(status, where)
  return {status, where or -1, moderation or -1, verdicts, 0}
end

local function store(new_position)
  redis.call('HSET', log_key, source, string.format('%s %.0f %.0f %.0f', new_position and string.format('%.0f', new_position) or '-',
    math.max(stored_time, time), math.max(stored_caught_up, caught_up), target))
end

-- Checks. Nothing is written before all of them have passed, except a target.
local known = redis.call('HGET', boards_key, '@') or ''
if known ~= ARGV[1] then
  return head(2, known)
end
if source ~= '' then
  local topic = log['runs-topic']
  if topic and topic ~= ARGV[3] then
    return head(3, topic)
  end
  local gap = (position or 0) < from
  if not position then
    target = math.max(target, log_end, from)
  elseif gap then
    target = math.max(target, from)
  end
  local first = tonumber(ARGV[8])
  if gap and first > 0 then
    gap = false
    if first > 1 then -- in force still? A promotion may have lost it.
      local definitions = redis.call('HGETALL', boards_key)
      for i = 1, #definitions, 2 do
        if string.match(definitions[i], '^@.') then
          gap = gap or tonumber(string.match(definitions[i + 1], ' (%d+)$')) < first
        end
      end
    end
  end
  if gap then
    time, caught_up = 0, 0
    store(position)
    return head(1, position)
  end
end
if (moderation or 0) < judged or judged < verdicts then
  return head(1, position)
end

local some_hidden = redis.call('EXISTS', hidden_key) == 1

local function kind_of(key) return redis.call('TYPE', key).ok end

local function other_type(key)
  local kind = kind_of(key)
  return kind ~= 'zset' and kind ~= 'none'
end

-- The boards of this call, and whether each can take runs.
local count, at, boards = tonumber(ARGV[13]), 14, {}
for i = 1, count do
  local key = KEYS[4 + i]
  local board = {
    key = key, reference = string.sub(key, prefix_length + 1), start = ARGV[at], expires = ARGV[at + 1],
    runs = tonumber(ARGV[at + 2]), held = tonumber(ARGV[at + 3]), first = at + 4,
  }
  at = board.first + 2 * (board.runs + board.held)
  local entry = redis.call('HGET', boards_key, board.reference)
  local kind = kind_of(key)
  if entry then
    local epoch, _, _, status, build, loaded = string.match(entry, '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
    board.epoch, board.status, board.build, board.loaded = epoch, status, build, loaded
  else
    local definition = redis.call('HGET', boards_key, '@' .. string.match(board.reference, '^[^:]+')) or ''
    local whole_from = tonumber(string.match(definition, ' (%d+)$') or '0')
    board.epoch, board.build, board.loaded, board.fresh = '0', '-', '0', true
    board.status = tonumber(board.start) >= whole_from and kind == 'none' and EMPTY or NEEDS_REBUILD
  end
  local left = board.expires == '0' and SKEW or tonumber(board.expires) - now
  local missing = kind == 'none' and board.status == LIVE
  board.expired = left <= 0 or missing and left < SKEW
  if not board.expired and (missing or kind ~= 'zset' and kind ~= 'none' or some_hidden and other_type(key .. ':shadow')
      or board.held > 0 and other_type(key .. ':pending')) then
    board.lost = board.status ~= NEEDS_REBUILD
    board.status = NEEDS_REBUILD
  end
  local build = board.key .. ':build'
  if board.build ~= '-' and (other_type(build) or other_type(build .. ':shadow') or other_type(build .. ':pending')) then
    board.build, board.loaded, board.fresh = '-', '0', true -- somebody else wrote there: the job begins anew
  end
  board.created = kind == 'none'
  boards[i] = board
end

-- Writes.
local function register(board)
  redis.call('HSET', boards_key, board.reference,
    table.concat({board.epoch, board.start, board.expires, board.status, board.build, board.loaded}, ' '))
end

local function add(key, values)
  for i = 1, #values, CHUNK do
    redis.call('ZADD', key, 'GT', unpack(values, i, math.min(i + CHUNK - 1, #values)))
  end
end

local function expire(key, values, expires) -- last: where the server's clock is ahead, this deletes the key
  if #values > 0 and expires ~= '0' then redis.call('PEXPIREAT', key, expires) end
end

local function look_up(command, key, names)
  local found = {}
  for i = 1, #names, CHUNK do
    local part = redis.call(command, key, unpack(names, i, math.min(i + CHUNK - 1, #names)))
    for j = 1, #part do found[i + j - 1] = part[j] end
  end
  return found
end

local function hidden_of(players)
  return some_hidden and look_up('HMGET', hidden_key, players) or {}
end

local function held_of(board)
  local held, first = {}, board.first + 2 * board.runs
  for i = first, first + 2 * board.held - 2, 2 do
    held[#held + 1], held[#held + 2] = ARGV[i + 1], ARGV[i]
  end
  return held
end

-- A build gets all that its board gets: so nothing has to be caught up before the switch.
local function put_build(board, players, hidden)
  local key, public, shadow, held = board.key .. ':build', {}, {}, held_of(board)
  for i = 1, board.runs do
    local to = hidden[i] and shadow or public
    to[#to + 1], to[#to + 2] = ARGV[board.first + 2 * i - 1], players[i]
  end
  for suffix, values in pairs({[''] = public, [':shadow'] = shadow, [':pending'] = held}) do
    add(key .. suffix, values)
    expire(key .. suffix, values, board.expires)
  end
end

-- What a submit left for a run that was the best already is said with it, once.
local function announced(board, players)
  local fields = {}
  for i = 1, board.runs do fields[i] = board.reference .. '|' .. players[i] end
  local left = look_up('HMGET', announce_key, fields)
  local before, done = {}, {}
  for i = 1, board.runs do
    if left[i] then
      local composite, rank, previous = string.match(left[i], '^(%d+) (%d+) (%d*)$')
      local new = tonumber(ARGV[board.first + 2 * i - 1])
      if new == tonumber(composite) then before[i] = {tonumber(rank), previous} end
      if new >= tonumber(composite) then done[#done + 1] = fields[i] end
    end
  end
  for i = 1, #done, CHUNK do redis.call('HDEL', announce_key, unpack(done, i, math.min(i + CHUNK - 1, #done))) end
  return before
end

local function leave(board, player, composite, rank, previous)
  local before = previous == '' and '' or string.format('%.0f', previous) -- a server before Valkey 9 says "8e+15"
  redis.call('HSET', announce_key, board.reference .. '|' .. player, string.format('%s %.0f %s', composite, rank, before))
  redis.call('PEXPIRE', announce_key, ANNOUNCE)
end

local some_announced = source ~= '' and redis.call('EXISTS', announce_key) == 1

local function put(board, players, hidden, block)
  local public, shadow, hidden_runs = {}, {}, {}
  local bests = look_up('ZMSCORE', board.key, players)
  local mine, raised = {}, {}
  for i = 1, board.runs do
    local composite = ARGV[board.first + 2 * i - 1]
    if hidden[i] then
      shadow[#shadow + 1], shadow[#shadow + 2] = composite, players[i]
      hidden_runs[#hidden_runs + 1] = i
    else
      local best = bests[i] and tonumber(bests[i]) or -1
      local new = tonumber(composite)
      raised[i] = new > best
      if new >= best or source == '' then mine[#mine + 1] = i end
      if new > best then
        public[#public + 1], public[#public + 2] = composite, players[i]
      end
    end
  end
  local left = some_announced and announced(board, players) or {}
  local before = {}
  for j = 1, #mine do
    local i = mine[j]
    before[j] = bests[i] and redis.call('ZREVRANK', board.key, players[i]) + 1 or 0
  end
  add(board.key, public)
  add(board.key .. ':shadow', shadow)
  local held = held_of(board)
  add(board.key .. ':pending', held)
  block[3] = hidden_runs
  for j = 1, #mine do
    local i = mine[j]
    local previous = bests[i] or ''
    block[#block + 1] = i
    block[#block + 1] = (raised[i] or left[i]) and 1 or 0
    block[#block + 1] = redis.call('ZREVRANK', board.key, players[i]) + 1
    block[#block + 1] = not raised[i] and left[i] and left[i][1] or before[j]
    block[#block + 1] = not raised[i] and left[i] and left[i][2] or previous
    if source == '' then
      local composite = ARGV[board.first + 2 * i - 1]
      block[#block + 1] = raised[i] and composite or previous
      if raised[i] then leave(board, players[i], composite, before[j], previous) end
    end
  end
  local found = #hidden_runs > 0 and look_up('ZMSCORE', board.key .. ':shadow', players) or {}
  for j = 1, #hidden_runs do
    local i = hidden_runs[j]
    local is_best = found[i] and tonumber(found[i]) == tonumber(ARGV[board.first + 2 * i - 1])
    if is_best or source == '' then
      for _, value in ipairs({i, 0, 0, 0, ''}) do block[#block + 1] = value end
      if source == '' then block[#block + 1] = found[i] or '' end
    end
  end
  if board.status == EMPTY and #public > 0 then
    board.status, board.fresh = LIVE, true
  end
  if board.created then expire(board.key, public, board.expires) end
  expire(board.key .. ':shadow', shadow, board.expires)
  expire(board.key .. ':pending', held, board.expires)
end

local reply = head(0, position)
for i = 1, count do
  local board = boards[i]
  local block = {0, tonumber(board.epoch), {}}
  if board.expired then
    block[1] = 2
  else
    local players = {}
    for j = 1, board.runs do players[j] = ARGV[board.first + 2 * j - 2] end
    local hidden = hidden_of(players)
    if board.build ~= '-' then put_build(board, players, hidden) end
    if board.status == NEEDS_REBUILD then
      block[1] = 1
    else
      put(board, players, hidden, block)
    end
  end
  if not board.expired and (board.fresh or board.lost) then register(board) end
  reply[5 + i] = block
end

if source ~= '' then
  position = math.max(position or 0, to)
  store(position)
  log[source] = string.format('%.0f 0 0 %.0f', position, target)
  if not log['runs-topic'] then redis.call('HSET', log_key, 'runs-topic', ARGV[3]) end
  if tonumber(log.partitions or '0') < tonumber(ARGV[4]) then
    redis.call('HSET', log_key, 'partitions', ARGV[4])
    log.partitions = ARGV[4]
  end
  reply[2] = position
end

local live = moderation and moderation >= moderation_target
for p = 0, tonumber(log.partitions or '0') - 1 do
  local there, _, _, goal = partition_entry('runs:' .. p)
  live = live and there and there >= goal
end
reply[5] = live and log.partitions and 1 or 0
return reply
