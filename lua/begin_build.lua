-- Name a build of one board in the registry: from now on every script that writes the board writes the build too.
--
-- What an abandoned build left is unlinked first, and a board that is not registered gets its entry.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  board   sorted set; its side keys and those of its build as in apply_runs
-- ARGV
--   1  definitions  as in apply_runs; not looked at for build "-"
--   2  build        id of the build: a word of the job's own; "-": none, which drops the one that was there
--   3  start        of the board's window, epoch ms
--   4  expires      when its keys go, epoch ms; 0: never
-- Reply: {status, moderation, board status}
--   status 0 begun, 2 other definitions (moderation: the digest known here); moderation as in apply_runs
--   board status: live, empty or needs-rebuild, as the registry has it now

local log_key, boards_key, board_key = KEYS[1], KEYS[2], KEYS[3]
local reference = string.sub(board_key, #log_key - #'log' + 1)

local known = redis.call('HGET', boards_key, '@') or ''
if known ~= ARGV[1] and ARGV[2] ~= '-' then return {2, known, ''} end

local kind = redis.call('TYPE', board_key).ok
local epoch, status = '0', nil
local entry = redis.call('HGET', boards_key, reference)
if entry then
  epoch, status = string.match(entry, '^(%d+) %d+ %d+ (%S+) ')
  if kind ~= 'zset' and (kind ~= 'none' or status == 'live') then status = 'needs-rebuild' end
else
  local definition = redis.call('HGET', boards_key, '@' .. string.match(reference, '^[^:]+')) or ''
  local whole_from = tonumber(string.match(definition, ' (%d+)$') or '0')
  status = tonumber(ARGV[3]) >= whole_from and kind == 'none' and 'empty' or 'needs-rebuild'
end
redis.call('UNLINK', board_key .. ':build', board_key .. ':build:shadow', board_key .. ':build:pending',
  board_key .. ':build:load')
redis.call('HSET', boards_key, reference, table.concat({epoch, ARGV[3], ARGV[4], status, ARGV[2], '0'}, ' '))
local moderation = string.match(redis.call('HGET', log_key, 'moderation') or '', '^(%d+) ')
return {0, tonumber(moderation or '-1'), status}
