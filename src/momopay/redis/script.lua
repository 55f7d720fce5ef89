-- One key of the service: its log of slots, whoever takes them. The arithmetic is RateBudget's, in whole microseconds
-- of this server's clock, which the line before this one reads into `now`.
--
-- KEYS[1]  a hash: born, stop, alone (times), log ("time lane-letter" tokens in order), m:<member> (last seen)
-- ARGV     op, member, born, told, told_stop, lapse, requests, window, lane (P payment, R read, L poll), span
--   born   the log that the caller knows, 0 for none; a caller who knows another log must tell first
--   told   tokens that the log may lack; they go in as often as the caller counts them
--   lapse  how long from now everybody goes on alone, so that others who were cut off can tell, too
--   span   for `reserve` the patience, for `stop` the length
-- Returns  status, delay, now, born, stop, alone, members, log
local op, member, told = ARGV[1], ARGV[2], ARGV[4]
local knows, told_stop, lapse = tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[6])
local requests, window, lane, span = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10])

local hash, members = {}, 0
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do hash[flat[i]] = flat[i + 1] end
local born, stop, alone = tonumber(hash.born or now), tonumber(hash.stop or 0), tonumber(hash.alone or 0)

local gone = {}
hash['m:' .. member] = now
for field, seen in pairs(hash) do
  if string.sub(field, 1, 2) == 'm:' then
    if tonumber(seen) + 2 * window <= now then gone[#gone + 1] = field else members = members + 1 end
  end
end

local slots, lanes, held = {}, {}, {}
local function place_of(time) -- after all that are not later
  local place = #slots
  while place > 0 and slots[place] > time do place = place - 1 end
  return place
end
local function put(time, letter)
  local place = place_of(time) + 1
  table.insert(slots, place, time)
  table.insert(lanes, place, letter)
end
for time, letter in string.gmatch(hash.log or '', '(%d+)(%a)') do
  local token = time .. letter
  time = tonumber(time)
  if time + window > now then
    slots[#slots + 1], lanes[#lanes + 1] = time, letter
    held[token] = (held[token] or 0) + 1
  end
end

local function answer(status, delay)
  local tokens = {}
  for i = 1, #slots do tokens[i] = string.format('%.0f%s', slots[i], lanes[i]) end
  local log = table.concat(tokens, ' ')
  if op ~= 'look' and status ~= 'tell' then
    redis.call('HSET', KEYS[1], 'born', string.format('%.0f', born), 'stop', string.format('%.0f', stop),
      'alone', string.format('%.0f', alone), 'log', log, 'm:' .. member, string.format('%.0f', now))
    if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
    local last = math.max(now, stop, alone, slots[#slots] or 0)
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((last - now + 2 * window) / 1000)))
  end
  return {status, string.format('%.0f', delay), string.format('%.0f', now), string.format('%.0f', born),
    string.format('%.0f', stop), string.format('%.0f', alone), members, log}
end

local function hold_back(until_)
  stop = math.max(stop, until_)
  for i = #slots, 1, -1 do
    if slots[i] > now and slots[i] < stop then
      table.remove(slots, i)
      table.remove(lanes, i)
    end
  end
end

if op == 'look' then return answer('seen', 0) end
if knows ~= 0 and knows ~= born then return answer('tell', 0) end

for time, letter in string.gmatch(told, '(%d+)(%a)') do
  local token = time .. letter
  time = tonumber(time)
  if (held[token] or 0) > 0 then
    held[token] = held[token] - 1
  elseif time + window > now then
    put(time, letter)
  end
end
if told_stop > stop + 10000 then hold_back(told_stop) end -- the same stop by another clock is no later one
if lapse > 0 then alone = math.max(alone, now + lapse) end

if op == 'stop' then
  hold_back(now + span)
  return answer('seen', 0)
end
if op == 'tell' then return answer('seen', 0) end
if now < alone then return answer('alone', 0) end

local function fits(slot, share)
  local place = place_of(slot)
  if place >= share and slots[place - share + 1] + window > slot then return false end
  -- With the new slot in place, no slot may come within a window of the one `requests` places before it.
  for i = math.max(place + 1, requests), math.min(place + requests, #slots) do
    local before = i - requests + 1
    if slots[i] < (before <= place and slots[before] or slot) + window then return false end
  end
  return true
end

local polls = {}
for i = 1, #slots do if lanes[i] == 'L' then polls[#polls + 1] = slots[i] end end
local floor = math.floor(requests / 8)
local pace = math.ceil(window / math.max(1, floor))

local function share(slot, queued)
  if lane ~= 'L' and not queued and #polls == 0 then return requests end
  local recent = 0
  for i = 1, #polls do
    if polls[i] > slot - window and polls[i] <= slot then recent = recent + 1 end
  end
  local unused = math.max(0, floor - recent)
  if lane == 'L' then
    local paced = unused > 0 and (#polls == 0 or polls[#polls] + pace <= slot)
    return requests - (paced and 0 or math.floor(requests / 4))
  end
  return requests - unused - ((queued and lane == 'R') and math.floor(requests / 10) or 0)
end

local function first_free(start)
  if fits(start, share(start, false)) then return start end
  local times = {}
  for i = 1, #slots do times[i] = slots[i] + window end
  if lane == 'L' and #polls > 0 then
    times[#times + 1] = polls[#polls] + pace
    table.sort(times)
  end
  for i = 1, #times do
    if times[i] > start and fits(times[i], share(times[i], true)) then return times[i] end
  end
end

local slot = first_free(math.max(now, stop))
if slot - now <= span then put(slot, lane) end
return answer('taken', slot - now)
