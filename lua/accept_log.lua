-- Take a log that is not the whole one, or another one, for the log of this primary: what an operator decides.
--
-- KEYS
--   1  log     as in apply_runs; here also "short:<reference>" -> digest, "short:@<name>" -> "digest whole_from": what
--              a log that begins too late made need a rebuild, and from when on it was whole before
--   2  boards  as in apply_runs
--   3  due     as in moderate
-- ARGV
--   1  mode        "short": the log holds nothing older: windows that start earlier need a rebuild, and that is noted
--                  "trimmed": boards that were marked so count as whole; every partition is read again from its beginning
--                  "new": positions in another topic, or past the end of this one, are forgotten, also those that due
--                  players wait for
--   2  definitions  as in apply_runs
--   3  whole_from  epoch ms, mode "short" only: windows that start earlier are marked
--   4  topic       id of the topic; not in mode "short", as what follows
--   5  moderation  id of the moderation topic
--   6… low end     first offset that the log holds and offset after its last, of each partition from 0 on
-- Reply: {status, known, changed, then references of the boards that count as whole now}
--   status  0 done, 2 other definitions, 3 another topic that this mode does not accept; then nothing was written
--   known   digest or topic id known here
--   changed  1: positions, or boards, are other ones than before
-- What was taken from a log stays: a board is a maximum. Only a board whose members were all made under the
-- definition in force comes back, or one without members: composites of another definition mean other scores.

local LIVE, EMPTY, NEEDS_REBUILD = 'live', 'empty', 'needs-rebuild'
local ENTRY = '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$'

local log_key, boards_key, due_key, mode = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local prefix = string.sub(log_key, 1, #log_key - #'log')
local log, registry = {}, {}
local flat = redis.call('HGETALL', log_key)
for i = 1, #flat, 2 do log[flat[i]] = flat[i + 1] end
flat = redis.call('HGETALL', boards_key)
for i = 1, #flat, 2 do registry[flat[i]] = flat[i + 1] end

local known = registry['@'] or ''
if known ~= ARGV[2] then return {2, known, 0} end

local function definition(reference) -- of a board: digest, from when on it is whole
  local digest, from = string.match(registry['@' .. string.match(reference, '^[^:]+')] or '', '^(%S+) (%d+)$')
  return digest, tonumber(from or '0')
end

if mode == 'short' then -- noted and marked in one step: of two calls the second could come first
  local from, short = tonumber(ARGV[3]), {}
  for field, value in pairs(registry) do
    local digest, before = string.match(value, '^(%S+) (%d+)$')
    if string.match(field, '^@.') and tonumber(before) < from then
      if string.match(log['short:' .. field] or '', '^%S+') ~= digest then
        redis.call('HSET', log_key, 'short:' .. field, value)
      end
      redis.call('HSET', boards_key, field, string.format('%s %.0f', digest, from))
      short[string.sub(field, 2)] = digest
    end
  end
  for field, value in pairs(registry) do
    local epoch, start, expires, status, build, loaded = string.match(value, ENTRY)
    local digest = short[string.match(field, '^[^:]+')]
    if digest and status and status ~= NEEDS_REBUILD and tonumber(start) < from then
      redis.call('HSET', log_key, 'short:' .. field, digest)
      redis.call('HSET', boards_key, field, table.concat({epoch, start, expires, NEEDS_REBUILD, build, loaded}, ' '))
    end
  end
  return {0, known, next(short) and 1 or 0}
end

local topic, moderation = log['runs-topic'], log['moderation-topic']
local other_topic = topic and topic ~= ARGV[4]
local judged = tonumber(string.match(log.moderation or '', '^(%d+)') or '0')
if moderation and moderation ~= ARGV[5] and (judged > 0 or mode ~= 'new') then return {3, moderation, 0} end
if other_topic and mode ~= 'new' then return {3, topic, 0} end

local partitions = (#ARGV - 5) / 2
local changed, again, reply = 0, false, {0, topic or '', 0}

local function place(partition, position) -- everything up to the log's end must come again before the board is live
  redis.call('HSET', log_key, 'runs:' .. partition, string.format('%s 0 0 %s', position, ARGV[7 + 2 * partition]))
  changed = 1
end

if mode == 'new' then
  if moderation and moderation ~= ARGV[5] then
    redis.call('HDEL', log_key, 'moderation', 'moderation-topic')
    changed = 1
  end
  if other_topic then
    for field in pairs(log) do
      if string.sub(field, 1, 5) == 'runs:' then redis.call('HDEL', log_key, field) end
    end
    redis.call('HSET', log_key, 'runs-topic', ARGV[4], 'partitions', string.format('%.0f', partitions))
    changed = 1
  else
    for p = 0, partitions - 1 do
      local position = tonumber(string.match(log['runs:' .. p] or '', '^(%d+)'))
      if position and position > tonumber(ARGV[7 + 2 * p]) then place(p, ARGV[6 + 2 * p]) end
    end
  end
  if changed == 1 then -- else no fold of this topic would ever reach far enough for them
    local due = redis.call('HGETALL', due_key)
    for i = 1, #due, 2 do redis.call('HSET', due_key, due[i], string.match(due[i + 1], '^%S+ %S+') .. ' ') end
  end
  return {0, topic or '', changed}
end

-- Definitions first: they say which boards without an entry of their own are whole.
for field, value in pairs(log) do
  local name = string.match(field, '^short:(@.+)$')
  if name then
    if string.match(registry[name] or '', '^%S+') == string.match(value, '^%S+') then
      redis.call('HSET', boards_key, name, value)
      registry[name], again = value, true
    end
    redis.call('HDEL', log_key, field)
  end
end
for field, value in pairs(registry) do
  local epoch, start, expires, status, build, loaded = string.match(value, ENTRY)
  local noted = log['short:' .. field]
  if status == NEEDS_REBUILD then
    local digest, from = definition(field)
    local kind = redis.call('TYPE', prefix .. field).ok
    if kind == 'zset' and noted == digest or kind == 'none' and (noted == digest or again and tonumber(start) >= from) then
      epoch, status = string.format('%.0f', tonumber(epoch) + 1), kind == 'zset' and LIVE or EMPTY
      redis.call('HSET', boards_key, field, table.concat({epoch, start, expires, status, build, loaded}, ' '))
      reply[#reply + 1], again = field, true
    end
  end
  if noted then redis.call('HDEL', log_key, 'short:' .. field) end
end
for p = 0, partitions - 1 do
  local position = tonumber(string.match(log['runs:' .. p] or '', '^(%d+)') or '0')
  local low = tonumber(ARGV[6 + 2 * p])
  if position < low or again and position > low then place(p, ARGV[6 + 2 * p]) end
end
if changed == 1 then
  redis.call('HSET', log_key, 'runs-topic', ARGV[4])
  if tonumber(log.partitions or '0') < partitions then
    redis.call('HSET', log_key, 'partitions', string.format('%.0f', partitions))
  end
end
reply[3] = changed
return reply
