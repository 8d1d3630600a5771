-- Mend members of one board and its side keys that differ from a fold of the log, while it is up.
--
-- Every operation looks first: it does nothing where a newer run, or somebody else, was faster.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  hidden  as in apply_runs
--   4  due     as in moderate
--   5  board   sorted set
-- ARGV
--   1  definitions  as in apply_runs
--   2  judged       moderation position at which the fold was judged
--   3  operations   how many follow, five words each: operation suffix member seen composite
--        raise    composite is the least that the member has: add it, never lower it
--        replace  put composite ("": nothing) in the place of `seen`, and mark the player due: a run that came after the
--                 fold was compared with what is replaced, so the player is found again from the log
--        hide     a hidden member leaves the board; its value is not moved, as what the shadow has to hold is for the
--                 fold to say
--      suffix: "" for the board, or ":shadow", ":pending"
-- Reply: {status, moderation, done}
--   status 0 done, 1 the stored moderation position is not `judged`, 2 other definitions, 4 the board needs a rebuild
--   moderation as in apply_runs; done: how many operations changed something

local log_key, boards_key, hidden_key, due_key, board_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local reference = string.sub(board_key, #log_key - #'log' + 1)
local stored = string.match(redis.call('HGET', log_key, 'moderation') or '', '^(%d+) ')
local moderation = tonumber(stored or '-1')
if (redis.call('HGET', boards_key, '@') or '') ~= ARGV[1] then return {2, moderation, 0} end
if moderation ~= tonumber(ARGV[2]) then return {1, moderation, 0} end

local entry = redis.call('HGET', boards_key, reference) or ''
local epoch, start, expires, status, build, loaded = string.match(entry, '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
local kind = redis.call('TYPE', board_key).ok
if not epoch or status == 'needs-rebuild' or kind == 'none' and status == 'live' then return {4, moderation, 0} end
for _, suffix in ipairs({'', ':shadow', ':pending'}) do
  local found = redis.call('TYPE', board_key .. suffix).ok
  if found ~= 'zset' and found ~= 'none' then return {4, moderation, 0} end
end

local function mark_due(player)
  local words = {'erase', string.format('%.0f', math.max(moderation - 1, 0))}
  local log = redis.call('HGETALL', log_key)
  for i = 1, #log, 2 do
    local position = string.match(log[i + 1], '^(%d+) ')
    if position and string.sub(log[i], 1, 5) == 'runs:' then words[#words + 1] = log[i] .. '=' .. position end
  end
  redis.call('HSETNX', due_key, player, table.concat(words, ' '))
end

local done = 0
for i = 4, 3 + 5 * tonumber(ARGV[3]), 5 do
  local operation, suffix, member, seen, composite = unpack(ARGV, i, i + 4)
  local key, changed = board_key .. suffix, 0
  local hidden = suffix ~= ':pending' and redis.call('HEXISTS', hidden_key, member) == 1
  if operation == 'raise' then
    if suffix == ':pending' or hidden == (suffix == ':shadow') then
      changed = redis.call('ZADD', key, 'GT', 'CH', composite, member)
    end
  elseif operation == 'replace' then
    if (redis.call('ZSCORE', key, member) or '') == seen then
      if composite == '' then redis.call('ZREM', key, member) else redis.call('ZADD', key, composite, member) end
      mark_due(suffix == ':pending' and string.match(member, '^[^|]+') or member)
      changed = 1
    end
  elseif hidden then
    changed = redis.call('ZREM', key, member)
  end
  done = done + changed
end

for _, suffix in ipairs({'', ':shadow', ':pending'}) do
  if expires ~= '0' then redis.call('PEXPIREAT', board_key .. suffix, expires) end
end
status = redis.call('EXISTS', board_key) == 1 and 'live' or 'empty'
redis.call('HSET', boards_key, reference, table.concat({epoch, start, expires, status, build, loaded}, ' '))
return {0, moderation, done}
