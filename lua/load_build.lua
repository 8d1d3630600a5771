-- Load one numbered chunk of a fold into a build. Chunks come in order, and each is taken once.
--
-- Values that pass through a script cost the server twice as much as those of a plain command. So the job sends a chunk
-- as one transaction: open, a ZADD GT of its members to <board>:build:load, close. `open` puts the build under that key
-- if the chunk may be loaded; `close` puts it back, or takes away what the ZADD made when it may not.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  board   sorted set whose build it is
-- ARGV
--   1  build    id of the build
--   2  chunk    number of the chunk, from 0
--   3  judged   moderation position at which the fold was judged, and its players were told hidden or not
--   4  step     "open" or "close" of a transaction as above, or "whole": all members of the chunk follow here
--   5  public   how many pairs follow for the build
--   6  shadow   how many after them for its shadow
--   7  pending  how many after them for its pending runs
--   8… composite and member of each pair, best first
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
local step, open_key = ARGV[4], build_key .. ':load'

local refused
loaded = tonumber(loaded or '0')
if build ~= ARGV[1] then refused = {4, moderation, 0}
elseif moderation ~= judged then refused = {1, moderation, loaded}
elseif chunk > loaded then refused = {3, moderation, loaded}
elseif chunk < loaded then refused = {0, moderation, loaded} end
if step == 'open' or refused then redis.call('UNLINK', open_key) end
if refused then return refused end
if step == 'open' then
  if redis.call('EXISTS', build_key) == 1 then redis.call('RENAME', build_key, open_key) end
  return {0, moderation, loaded}
end
if step == 'close' and redis.call('EXISTS', open_key) == 1 then
  redis.call('RENAME', open_key, build_key)
  if expires ~= '0' then redis.call('PEXPIREAT', build_key, expires) end
end

local at = 8
for i, suffix in ipairs({'', ':shadow', ':pending'}) do
  local pairs_of_key = tonumber(ARGV[4 + i])
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
