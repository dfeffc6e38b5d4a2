-- The `serve` workload of docs/targets.md: the server of lua-http, with a coroutine of cqueues for each
-- connection and each request. A backend is asked by its client; connections are kept, and one that is
-- free serves whichever request comes next.

local cqueues = require("cqueues")
local http_client = require("http.client")
local http_headers = require("http.headers")
local http_server = require("http.server")

local orders = {}
for _, argument in ipairs(arg) do
  local key, value = argument:match("^(.-)=(.*)$")
  if key then
    orders[key] = value
  end
end

-- Asks the backend for a target, and returns what it answered.
local free = {}
local function ask(backend, target)
  local connection = table.remove(free)
  if not connection then
    local host, port = backend:match("^http://(.*):(%d+)$")
    connection = assert(http_client.connect({ host = host, port = tonumber(port), tls = false, version = 1.1 }))
  end
  local stream = assert(connection:new_stream())
  local head = http_headers.new()
  head:append(":method", "GET")
  head:append(":scheme", "http")
  head:append(":authority", backend:sub(8))
  head:append(":path", target)
  assert(stream:write_headers(head, true))
  local answer = assert(stream:get_headers())
  local body = assert(stream:get_body_as_string())
  if answer:get(":status") ~= "200" then
    error("the backend answered " .. answer:get(":status"))
  end
  free[#free + 1] = connection
  return body
end

local function serve()
  local kind = orders.kind
  if kind ~= "plain" and kind ~= "backend" then
    error(("there is no kind '%s' of servers here"):format(tostring(kind)), 0)
  end
  local backend = kind == "backend" and assert(orders.backend, "no backend is named")
  local server = assert(http_server.listen({
    host = "127.0.0.1",
    port = 0,
    tls = false,
    version = 1.1,
    max_concurrent = math.huge,
    connection_setup_timeout = math.huge,
    intra_stream_timeout = math.huge,
    onstream = function(_, stream)
      local target = assert(stream:get_headers()):get(":path")
      local body = backend and ask(backend, target) or "carefree " .. target .. "\n"
      local head = http_headers.new()
      head:append(":status", "200")
      head:append("content-type", "text/plain")
      head:append("content-length", tostring(#body))
      assert(stream:write_headers(head, false))
      assert(stream:write_body_from_string(body))
    end,
    onerror = function(_, _, operation, message)
      -- A client that closes is none.
      if operation == "onstream" then
        io.stderr:write(operation, " failed: ", tostring(message), "\n")
      end
    end,
  }))
  assert(server:listen())
  local _, _, port = server:localname()
  print(('{"phase":"serving","port":%d}'):format(port))
  io.stdout:flush()

  local loop = cqueues.new()
  loop:wrap(function()
    assert(server:loop())
  end)
  loop:wrap(function()
    -- A read of standard input would stop all coroutines.
    cqueues.poll({ pollfd = 0, events = "r" })
    io.read()
    print('{"sample":{"units":1,"switches_asked":0,"switches_made":0,"rounds":[]}}')
    io.stdout:flush()
    os.exit(0, false)
  end)
  assert(loop:loop())
end

local done, message = pcall(serve)
if not done then
  print(('{"failure":{"message":"%s"}}'):format(tostring(message):gsub('["\\%c]', " ")))
  os.exit(1)
end
