-- Put a build in the place of its board, in one step: readers see the old board or the complete new one.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  due     as in moderate
--   4  board   sorted set
-- ARGV
--   1  definitions  as in apply_runs: the fold was made with these
--   2  build        id of the build
--   3  chunks       how many the whole fold has
--   4  due          how many players follow that were left out, as they got a verdict while the build was loaded; each:
--        player, cause and offset of the verdict. They are found again from the log, as after any other verdict
-- Reply: {status, epoch, members, loaded}
--   status 0 switched, 2 other definitions, 3 chunks are missing, 4 gone: the registry names another build, or none
--   epoch is one more where the switch ends a life that was lost or needed a rebuild; members: of the new board
-- The old keys are unlinked, never overwritten: RENAME would free them on the thread that serves.

local log_key, boards_key, due_key, board_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reference = string.sub(board_key, #log_key - #'log' + 1)
if (redis.call('HGET', boards_key, '@') or '') ~= ARGV[1] then return {2, 0, 0, 0} end
local entry = redis.call('HGET', boards_key, reference) or ''
local epoch, start, expires, status, build, loaded = string.match(entry, '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
if build ~= ARGV[2] then return {4, 0, 0, 0} end
if tonumber(loaded) ~= tonumber(ARGV[3]) then return {3, 0, 0, tonumber(loaded)} end

local kind = redis.call('TYPE', board_key).ok
if status == 'needs-rebuild' or kind ~= 'zset' and (kind ~= 'none' or status == 'live') then epoch = epoch + 1 end
for _, suffix in ipairs({'', ':shadow', ':pending'}) do
  local new = board_key .. ':build' .. suffix
  redis.call('UNLINK', board_key .. suffix)
  if redis.call('EXISTS', new) == 1 then
    redis.call('RENAME', new, board_key .. suffix)
    if expires ~= '0' then redis.call('PEXPIREAT', board_key .. suffix, expires) end
  end
end
if tonumber(ARGV[4]) > 0 then
  local words = {}
  local log = redis.call('HGETALL', log_key)
  for i = 1, #log, 2 do
    local position = string.match(log[i + 1], '^(%d+) ')
    if position and string.sub(log[i], 1, 5) == 'runs:' then words[#words + 1] = log[i] .. '=' .. position end
  end
  local positions = table.concat(words, ' ')
  for i = 5, 4 + 3 * tonumber(ARGV[4]), 3 do
    redis.call('HSET', due_key, ARGV[i], table.concat({ARGV[i + 1], ARGV[i + 2], positions}, ' '))
  end
end
redis.call('UNLINK', board_key .. ':build:load')
local members = redis.call('ZCARD', board_key)
status = members > 0 and 'live' or 'empty'
redis.call('HSET', boards_key, reference, table.concat({epoch, start, expires, status, '-', '0'}, ' '))
return {0, tonumber(epoch), members, tonumber(loaded)}
