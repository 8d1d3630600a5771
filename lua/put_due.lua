-- Put the bests of a due player back, folded again from the log; then, called again, clear the player.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  hidden  as in apply_runs
--   4  due     as in moderate
-- ARGV
--   1  definitions  as in apply_runs
--   2  player
--   3  judged       moderation position at which the runs were judged
--   4  announced    clear the player if this is the stored moderation position and nothing has to be put; -1: only put
--   5  now          the sender's clock, epoch ms
--   6  sources      how many follow; each: source and the position up to which it was folded
--   7  boards       after the sources: how many follow; each: reference start expires composite ("": no best) held,
--                   then held x (player|run_id composite)
-- Reply: {status, moderation, verdicts, live, then each change}
--   status 0 put, 1 refused (moderation is not at `judged`, or verdicts came after), 2 other definitions,
--          4 not due, or folded less far than the mark, 5 cleared
--   a change: reference, epoch, rank, composite, as in moderate, of every board that is not lost

local LIVE, EMPTY, NEEDS_REBUILD = 'live', 'empty', 'needs-rebuild'
local SKEW = 60000 -- as in apply_runs

local log_key, boards_key, hidden_key, due_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local player, judged, announced, now = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local prefix = string.sub(log_key, 1, #log_key - #'log')

local log = {}
local flat = redis.call('HGETALL', log_key)
for i = 1, #flat, 2 do log[flat[i]] = flat[i + 1] end
local verdicts = tonumber(log.verdicts or '0')

local function entry_of(field)
  local position, _, _, target = string.match(log[field] or '- 0 0 0', '^(%S+) (%d+) (%d+) (%d+)$')
  return tonumber(position), tonumber(target)
end
local moderation, moderation_target = entry_of('moderation')

local known = redis.call('HGET', boards_key, '@') or ''
if known ~= ARGV[1] then return {2, moderation or -1, verdicts, 0} end

local mark = redis.call('HGET', due_key, player)
local folded, at = {}, 7
for _ = 1, tonumber(ARGV[6]) do
  folded[ARGV[at]] = tonumber(ARGV[at + 1])
  at = at + 2
end
if not mark then return {4, moderation or -1, verdicts, 0} end
for source, position in string.gmatch(mark, '(%S+)=(%d+)') do
  if tonumber(position) > (folded[source] or 0) then return {4, moderation or -1, verdicts, 0} end
end
if (moderation or 0) < judged or judged < verdicts then return {1, moderation or -1, verdicts, 0} end

local bests, count = {}, tonumber(ARGV[at])
at = at + 1
for _ = 1, count do
  local best = {start = ARGV[at + 1], expires = ARGV[at + 2], composite = ARGV[at + 3], held = {}}
  local held = tonumber(ARGV[at + 4])
  for i = at + 5, at + 4 + 2 * held, 2 do best.held[#best.held + 1] = {ARGV[i], ARGV[i + 1]} end
  bests[ARGV[at]] = best
  at = at + 5 + 2 * held
end

local function kind_of(key) return redis.call('TYPE', key).ok end

local function other_type(key)
  local kind = kind_of(key)
  return kind ~= 'zset' and kind ~= 'none'
end

local function expire(key, expires)
  if expires ~= '0' then redis.call('PEXPIREAT', key, expires) end
end

local is_hidden = redis.call('HEXISTS', hidden_key, player) == 1
local put_any = false

local function raise(key, member, composite, expires)
  if redis.call('ZADD', key, 'GT', 'CH', composite, member) == 1 then
    put_any = true
    expire(key, expires)
  end
end

local function put(key, best, expires)
  if best.composite ~= '' then raise(is_hidden and key .. ':shadow' or key, player, best.composite, expires) end
  for _, held in ipairs(best.held) do raise(key .. ':pending', held[1], held[2], expires) end
end

local entries, whole_from = {}, {}
local registry = redis.call('HGETALL', boards_key)
for i = 1, #registry, 2 do
  local reference = registry[i]
  if string.sub(reference, 1, 1) == '@' then
    whole_from[string.sub(reference, 2)] = tonumber(string.match(registry[i + 1], ' (%d+)$') or '0')
  else
    entries[reference] = registry[i + 1]
  end
end
for reference, best in pairs(bests) do
  if not entries[reference] then
    local status = tonumber(best.start) >= (whole_from[string.match(reference, '^[^:]+')] or 0)
      and kind_of(prefix .. reference) == 'none' and EMPTY or NEEDS_REBUILD
    entries[reference] = table.concat({'0', best.start, best.expires, status, '-', '0'}, ' ')
  end
end

local changes = {}
for reference, value in pairs(entries) do
  local key, best = prefix .. reference, bests[reference]
  local epoch, start, expires, status, build, loaded = string.match(value, '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
  if expires == '0' or tonumber(expires) - now >= SKEW then
    local kind = kind_of(key)
    local broken = other_type(key) or other_type(key .. ':shadow') or other_type(key .. ':pending')
    local lost = broken or kind == 'none' and status == LIVE -- moderate says so and marks it, within a second
    if best and build ~= '-' and not other_type(key .. ':build') and not other_type(key .. ':build:shadow')
        and not other_type(key .. ':build:pending') then
      put(key .. ':build', best, expires)
    end
    if not lost and status ~= NEEDS_REBUILD then
      if best then put(key, best, expires) end
      status = redis.call('EXISTS', key) == 1 and LIVE or EMPTY
      local composite = redis.call('ZSCORE', key, player)
      local rank = composite and redis.call('ZREVRANK', key, player) + 1 or 0
      for _, word in ipairs({reference, tonumber(epoch), rank, composite or ''}) do changes[#changes + 1] = word end
    end
    local entry = table.concat({epoch, start, expires, status, build, loaded}, ' ')
    if best or entry ~= value then redis.call('HSET', boards_key, reference, entry) end
  end
end

local live = moderation and moderation >= moderation_target and log.partitions
for p = 0, tonumber(log.partitions or '0') - 1 do
  local there, goal = entry_of('runs:' .. p)
  live = live and there and there >= goal
end
local cleared = announced >= 0 and announced == moderation and not put_any
if cleared then redis.call('HDEL', due_key, player) end
local reply = {cleared and 5 or 0, moderation or -1, verdicts, live and 1 or 0}
for i = 1, #changes do reply[#reply + 1] = changes[i] end
return reply
