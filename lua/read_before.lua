-- Read where some players stand on boards of this primary, in one step. Writes nothing, and says nothing of freshness.
--
-- A submit asks it while Kafka takes the run: an applier may be faster than the submit's own call, which then no longer
-- sees what was before.
--
-- KEYS
--   1…  one  sorted set a board
-- ARGV
--   1  boards  how many KEYS there are
--   2…  each   of a board, in the order of KEYS: how many players, then the players
-- Reply: {rank, composite of each player in the order of ARGV}
--   rank from 1, 0: not on the board; composite as text, "": not on the board

local reply, at = {}, 2
for i = 1, tonumber(ARGV[1]) do
  local there = redis.call('TYPE', KEYS[i]).ok == 'zset'
  local count = tonumber(ARGV[at])
  for j = at + 1, at + count do
    local index = there and redis.call('ZREVRANK', KEYS[i], ARGV[j])
    reply[#reply + 1] = index and index + 1 or 0
    reply[#reply + 1] = index and redis.call('ZSCORE', KEYS[i], ARGV[j]) or ''
  end
  at = at + count + 1
end
return reply
