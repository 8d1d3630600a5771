#!lua flags=allow-oom
-- Apply moderation events to every board of this primary and its builds, in one atomic step; without events, look.
--
-- The owner of the moderation partition calls it at least once a second, with events or without: so a primary that
-- fell back is noticed, and lost keys of boards that nobody writes. A ban must work on a full server: allow-oom.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  hidden  as in apply_runs
--   4  due     hash: player -> "cause offset source=position…": the positions when an event made the player due
--   5  announce  as in apply_runs
-- ARGV
--   1  definitions  as in apply_runs
--   2  topic        id of the moderation topic
--   3  from         offset of the first event
--   4  to           offset after the last
--   5  end          end of the topic as the sender saw it
--   6  time         record time of the last event, epoch ms; 0: none
--   7  caught_up    when `to` was the end, epoch ms; 0: it was not
--   8  now          the sender's clock, epoch ms: only for keys whose expiry has passed
--   9  events       how many follow, one a player at most; each: offset operation player count, then count words:
--        ban     "kind offset", what the hidden hash gets
--        unban   none
--        none    none: an event without effect, such as the unban of a ban that was replaced
--        erase   none
--        accept  run_id counts, then (reference start expires composite) of each board; counts 0: it puts nothing
--        reject  run_id, then (reference composite) of each delivery and board
-- Reply: {status, position, verdicts, live, due, boards, lost, broken, then each change}
--   status, position, live as in apply_runs; due: list of players due now, some of them where they are many
--   boards: registered, builds not counted
--   lost: references of the boards that were found lost by this call
--   broken: how many boards need a rebuild
--   a change: index of the event from 1, reference, epoch, rank, composite, rank before, composite before
--     of every event and board that is not lost, "" where there is none; the one before only if this call changed it

local LIVE, EMPTY, NEEDS_REBUILD = 'live', 'empty', 'needs-rebuild'
local SKEW = 60000 -- as in apply_runs
local CHUNK = 2000 -- as in apply_runs
local DUE = 100 -- players named in a reply: more than are folded in one look at the log

local log_key, boards_key, hidden_key, due_key, announce_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local from, to, log_end, now = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[8])
local prefix = string.sub(log_key, 1, #log_key - #'log')

local log = {}
local flat = redis.call('HGETALL', log_key)
for i = 1, #flat, 2 do log[flat[i]] = flat[i + 1] end
local verdicts = tonumber(log.verdicts or '0')

local known = redis.call('HGET', boards_key, '@') or ''
if known ~= ARGV[1] then return {2, known, verdicts, 0, {}, 0, {}, 0} end
local topic = log['moderation-topic']
if topic and topic ~= ARGV[2] then return {3, topic, verdicts, 0, {}, 0, {}, 0} end

local function entry_of(field)
  local position, time, caught_up, target = string.match(log[field] or '- 0 0 0', '^(%S+) (%d+) (%d+) (%d+)$')
  return tonumber(position), tonumber(time), tonumber(caught_up), tonumber(target)
end
local position, time, caught_up, target = entry_of('moderation')

local function store(new_position)
  redis.call('HSET', log_key, 'moderation', string.format('%s %.0f %.0f %.0f',
    new_position and string.format('%.0f', new_position) or '-', time, caught_up, target))
end

if not position then target = math.max(target, log_end, from) end
if (position or 0) < from then
  target = math.max(target, from)
  store(position)
  return {1, position or -1, verdicts, 0, {}, 0, {}, 0}
end

-- The boards, and what each event has to be done to: their keys and those of their builds.
local boards, sets, lost, whole_from = {}, {}, {}, {}

local function kind_of(key) return redis.call('TYPE', key).ok end

local function other_type(key)
  local kind = kind_of(key)
  return kind ~= 'zset' and kind ~= 'none'
end

local function register(board)
  redis.call('HSET', boards_key, board.reference,
    table.concat({board.epoch, board.start, board.expires, board.status, board.build, board.loaded}, ' '))
end

local function add_set(board, key, build, sides)
  sets[#sets + 1] =
    {board = board, key = key, build = build, sides = sides, shadow = key .. ':shadow', pending = key .. ':pending'}
end

local function take(board)
  local key = prefix .. board.reference
  board.key, board.kind = key, kind_of(key)
  local sides = not other_type(key .. ':shadow') and not other_type(key .. ':pending')
  local broken = other_type(key) or not sides
  local missing = board.kind == 'none' and board.status == LIVE
  if (broken or missing) and board.status ~= NEEDS_REBUILD then
    board.status, board.changed = NEEDS_REBUILD, true
    lost[#lost + 1] = board.reference
  end
  -- A board that needs a rebuild may still have members, and a ban must reach them, also where a side key is no
  -- sorted set any more; a lost one has none.
  board.open = not broken and not (board.kind == 'none' and board.status ~= EMPTY)
  if board.open or board.kind == 'zset' then add_set(board, key, false, sides) end
  if board.build ~= '-' then
    local build = key .. ':build'
    if other_type(build) or other_type(build .. ':shadow') or other_type(build .. ':pending') then
      board.build, board.loaded, board.changed = '-', '0', true
    else
      add_set(board, build, true, true)
    end
  end
  boards[#boards + 1], boards[board.reference] = board, board
end

local registry = redis.call('HGETALL', boards_key)
for i = 1, #registry, 2 do
  local reference = registry[i]
  if string.sub(reference, 1, 1) == '@' then
    whole_from[string.sub(reference, 2)] = tonumber(string.match(registry[i + 1], ' (%d+)$') or '0')
  else
    local epoch, start, expires, status, build, loaded =
      string.match(registry[i + 1], '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
    local kind = expires ~= '0' and tonumber(expires) <= now + SKEW and kind_of(prefix .. reference)
    if kind == 'none' then -- an expired key that is still there is looked after: the clocks may differ
      redis.call('HDEL', boards_key, reference)
    else
      take({reference = reference, epoch = epoch, start = start, expires = expires, status = status, build = build,
        loaded = loaded})
    end
  end
end

-- Operations on the keys of one board or build.
local function expire(key, expires)
  if expires ~= '0' then redis.call('PEXPIREAT', key, expires) end
end

local function raise(set, key, composite, player)
  redis.call('ZADD', key, 'GT', composite, player)
  expire(key, set.board.expires)
end

local function rank_of(set, player)
  local rank = redis.call('ZREVRANK', set.key, player)
  return rank and rank + 1 or 0
end

local changes = {} -- index of the event -> reference -> {rank, composite, rank before, composite before}

local function note(index, set, player, rank_before, before)
  if set.build then return end
  local of_event = changes[index] or {}
  changes[index] = of_event
  local composite = redis.call('ZSCORE', set.key, player)
  of_event[set.board.reference] = {composite and rank_of(set, player) or 0, composite or '', rank_before, before}
end

local hidden = {} -- this call's own view of who is hidden
local function is_hidden(player)
  if hidden[player] == nil then hidden[player] = redis.call('HEXISTS', hidden_key, player) == 1 end
  return hidden[player]
end

local function members_of(set, player) -- runs of a player that wait
  local found, cursor, start = {}, '0', player .. '|'
  if kind_of(set.pending) == 'none' then return found end
  local pattern = string.gsub(start, '[%*%?%[%]\\]', '\\%0') .. '*'
  repeat
    local page = redis.call('ZSCAN', set.pending, cursor, 'MATCH', pattern, 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do found[#found + 1] = page[2][i] end
  until cursor == '0'
  return found
end

local function hide(set, event, composite)
  local before = not set.build and rank_of(set, event.player) or 0
  redis.call('ZREM', set.key, event.player)
  if set.sides then raise(set, set.shadow, composite, event.player) end
  note(event.index, set, event.player, before, composite)
end

local function show(set, event, composite)
  redis.call('ZREM', set.shadow, event.player)
  raise(set, set.key, composite, event.player)
  note(event.index, set, event.player, 0, '')
end

-- What a submit left of a run that is taken would stay as long as others submit.
local function forget(set, event)
  if not set.build then redis.call('HDEL', announce_key, set.board.reference .. '|' .. event.player) end
end

local function erase(set, event)
  forget(set, event)
  local before = redis.call('ZSCORE', set.key, event.player)
  local rank = before and not set.build and rank_of(set, event.player) or 0
  redis.call('ZREM', set.key, event.player)
  if set.sides then
    redis.call('ZREM', set.shadow, event.player)
    for _, member in ipairs(members_of(set, event.player)) do redis.call('ZREM', set.pending, member) end
  end
  note(event.index, set, event.player, rank, before or '')
  event.falls = true
end

local function accept(set, event)
  if not set.sides then return end
  local waiting = redis.call('ZSCORE', set.pending, event.member)
  redis.call('ZREM', set.pending, event.member)
  local composites = event.composites[set.board.reference] or {}
  if event.counts and (waiting or #composites > 0) then
    local before = redis.call('ZSCORE', set.key, event.player)
    local rank = before and not set.build and rank_of(set, event.player) or 0
    local key = is_hidden(event.player) and set.shadow or set.key
    if waiting then raise(set, key, waiting, event.player) end
    for _, composite in ipairs(composites) do raise(set, key, composite, event.player) end
    local after = redis.call('ZSCORE', set.key, event.player)
    if after ~= before then note(event.index, set, event.player, rank, before or '') end
  end
end

local function reject(set, event)
  forget(set, event)
  if not set.sides then return end
  redis.call('ZREM', set.pending, event.member)
  for _, composite in ipairs(event.composites[set.board.reference] or {}) do
    for _, key in ipairs({set.key, set.shadow}) do
      local stored = redis.call('ZSCORE', key, event.player)
      if stored and tonumber(stored) == tonumber(composite) then
        local rank = key == set.key and not set.build and rank_of(set, event.player) or 0
        redis.call('ZREM', key, event.player)
        event.falls = true
        if key == set.key then note(event.index, set, event.player, rank, stored) end
      end
    end
  end
end

local SINGLE = {erase = erase, accept = accept, reject = reject}

-- Bans and unbans that follow each other look all their players up at once: most are on no board.
local function move_all(group, source, act)
  for _, set in ipairs(sets) do
    for i = 1, (source == 'key' or set.sides) and #group or 0, CHUNK do
      local players, last = {}, math.min(i + CHUNK - 1, #group)
      for j = i, last do players[#players + 1] = group[j].player end
      local found = redis.call('ZMSCORE', set[source], unpack(players))
      for j = i, last do
        local composite = found[j - i + 1]
        if composite then act(set, group[j], composite) end
      end
    end
  end
end

local function flush(group)
  if #group == 0 then return end
  if group[1].operation == 'ban' then
    move_all(group, 'key', hide)
    for _, event in ipairs(group) do
      redis.call('HSET', hidden_key, event.player, event.words[1])
      hidden[event.player] = true
    end
  else
    move_all(group, 'shadow', show)
    for _, event in ipairs(group) do
      redis.call('HDEL', hidden_key, event.player)
      hidden[event.player] = false
    end
  end
end

-- An accepted run can be the first of its board here: a rule had rejected it, so nothing was sent for it before.
local function needed(reference, start, expires)
  if boards[reference] or expires ~= '0' and tonumber(expires) - now < SKEW then return end
  local status = tonumber(start) >= (whole_from[string.match(reference, '^[^:]+')] or 0)
    and kind_of(prefix .. reference) == 'none' and EMPTY or NEEDS_REBUILD
  take({reference = reference, epoch = '0', start = start, expires = expires, status = status, build = '-',
    loaded = '0', changed = true})
end

local events, at = {}, 10
for index = 1, tonumber(ARGV[9]) do
  local count = tonumber(ARGV[at + 3])
  local event = {index = index, offset = tonumber(ARGV[at]), operation = ARGV[at + 1], player = ARGV[at + 2], words = {}}
  for i = 1, count do event.words[i] = ARGV[at + 3 + i] end
  at = at + 4 + count
  if event.operation == 'accept' or event.operation == 'reject' then
    local accepts = event.operation == 'accept'
    event.member, event.counts = event.player .. '|' .. event.words[1], accepts and event.words[2] == '1'
    event.composites = {}
    for i = accepts and 3 or 2, count, accepts and 4 or 2 do
      local reference, composite = event.words[i], event.words[accepts and i + 3 or i + 1]
      event.composites[reference] = event.composites[reference] or {}
      table.insert(event.composites[reference], composite)
      if event.counts then needed(reference, event.words[i + 1], event.words[i + 2]) end
    end
  end
  events[index] = event
end

local function positions()
  local words = {}
  for p = 0, tonumber(log.partitions or '0') - 1 do
    local there = entry_of('runs:' .. p)
    words[#words + 1] = string.format('runs:%d=%s', p, there and string.format('%.0f', there) or '0')
  end
  return table.concat(words, ' ')
end

local group = {}
for _, event in ipairs(events) do
  if event.offset >= (position or 0) then -- below: applied before; it is only said again, from the state found
    local operation = event.operation
    local moves = operation == 'ban' or operation == 'unban'
    if #group > 0 and (not moves or operation ~= group[1].operation) then
      flush(group)
      group = {}
    end
    if moves then
      group[#group + 1] = event
    elseif SINGLE[operation] then
      for _, set in ipairs(sets) do SINGLE[operation](set, event) end
      verdicts = math.max(verdicts, event.offset + 1)
      if event.falls then
        redis.call('HSET', due_key, event.player, string.format('%s %.0f %s', operation, event.offset, positions()))
      end
    end
  end
end
flush(group)

for _, board in ipairs(boards) do
  if board.open and board.status ~= NEEDS_REBUILD then
    local there = redis.call('EXISTS', board.key) == 1
    local status = there and LIVE or EMPTY
    board.changed = board.changed or status ~= board.status
    board.status = status
  end
  if board.changed then register(board) end
end

-- Positions, in the same step.
local reached = math.max(position or 0, to)
time, caught_up = math.max(time, tonumber(ARGV[6])), math.max(caught_up, tonumber(ARGV[7]))
store(reached)
if not topic then redis.call('HSET', log_key, 'moderation-topic', ARGV[2]) end
if verdicts > tonumber(log.verdicts or '0') then redis.call('HSET', log_key, 'verdicts', string.format('%.0f', verdicts)) end

local live = reached >= target and log.partitions
for p = 0, tonumber(log.partitions or '0') - 1 do
  local there, _, _, goal = entry_of('runs:' .. p)
  live = live and there and there >= goal
end

local due, waiting = {}, redis.call('HSCAN', due_key, '0', 'COUNT', DUE)[2]
for i = 1, math.min(#waiting, 2 * DUE), 2 do due[#due + 1] = waiting[i] end

local broken = 0
for _, board in ipairs(boards) do
  if board.status == NEEDS_REBUILD then broken = broken + 1 end
end
local reply = {0, reached, verdicts, live and 1 or 0, due, #boards, lost, broken}
for _, event in ipairs(events) do
  for _, board in ipairs(boards) do
    if board.open and board.status ~= NEEDS_REBUILD then
      local change = changes[event.index] and changes[event.index][board.reference]
      if not change then
        local composite = redis.call('ZSCORE', board.key, event.player)
        local rank = composite and redis.call('ZREVRANK', board.key, event.player) + 1 or 0
        change = {rank, composite or '', 0, ''}
      end
      for _, value in ipairs({event.index, board.reference, tonumber(board.epoch)}) do reply[#reply + 1] = value end
      for i = 1, 4 do reply[#reply + 1] = change[i] end
    end
  end
end
return reply
