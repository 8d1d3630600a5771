-- Load one numbered chunk of a fold into a build. Chunks come in order, and each is taken once.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  board   sorted set whose build it is
-- ARGV
--   1  build    id of the build
--   2  chunk    number of the chunk, from 0
--   3  judged   moderation position at which the fold was judged, and its players were told hidden or not
--   4  public   how many pairs follow for the build
--   5  shadow   how many after them for its shadow
--   6  pending  how many after them for its pending runs
--   7… composite and member of each pair, best first
-- Reply: {status, moderation, loaded}
--   status 0 it is there (now, or was before), 1 the stored moderation position is not `judged`, 3 gap: chunks before
--   it are missing, 4 gone: the registry names another build, or none; moderation as in apply_runs
--   loaded  how many chunks are there

local build_key = KEYS[3] .. ':build'
local reference = string.sub(KEYS[3], #KEYS[1] - #'log' + 1)
local chunk, judged = tonumber(ARGV[2]), tonumber(ARGV[3])
local entry = redis.call('HGET', KEYS[2], reference) or ''
local epoch, start, expires, status, build, loaded = string.match(entry, '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
local stored = string.match(redis.call('HGET', KEYS[1], 'moderation') or '', '^(%d+) ')
local moderation = tonumber(stored or '-1')

if build ~= ARGV[1] then return {4, moderation, 0} end
loaded = tonumber(loaded)
if moderation ~= judged then return {1, moderation, loaded} end
if chunk > loaded then return {3, moderation, loaded} end
if chunk < loaded then return {0, moderation, loaded} end

local at = 7
for i, suffix in ipairs({'', ':shadow', ':pending'}) do
  local pairs_of_key = tonumber(ARGV[3 + i])
  if pairs_of_key > 0 then
    local last = at + 2 * pairs_of_key - 1
    for first = at, last, 2000 do -- values a command: as in apply_runs
      redis.call('ZADD', build_key .. suffix, 'GT', unpack(ARGV, first, math.min(first + 1999, last)))
    end
    if expires ~= '0' then redis.call('PEXPIREAT', build_key .. suffix, expires) end
    at = last + 1
  end
end
redis.call('HSET', KEYS[2], reference, table.concat({epoch, start, expires, status, build, loaded + 1}, ' '))
return {0, moderation, loaded + 1}
