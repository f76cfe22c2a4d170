-- Every request differs from every other, so that no server may remember one.
local asked = 0

request = function()
  asked = asked + 1
  return wrk.format(nil, nil, { Metadata = "true", ["User-Agent"] = "guest/" .. asked })
end
