# The `fetch` workload of docs/targets.md: GETs by Net::HTTP, one after the other, by a thread each,
# or by a fiber each under the fiber scheduler of the async gem.

require "json"
require "net/http"
require "objspace"
require "uri"

# One GET, or as many as there are connections to keep.
class Client
  def initialize(orders)
    @uri = URI(orders["url"])
    @keep = orders["keep_alive"] == "1"
    @body = Integer(orders["body"])
    @idle = Queue.new
  end

  # Returns the length of the body.
  def get
    return keep_alive if @keep

    connection = open
    connection.start { |http| receive(http, "close") }
  end

  private

  def open
    connection = Net::HTTP.new(@uri.host, @uri.port)
    # Net::HTTP connects anew after two idle seconds; rounds follow on each other faster, but a
    # loaded machine may not.
    connection.keep_alive_timeout = 30
    connection
  end

  def keep_alive
    connection = begin
      @idle.pop(true)
    rescue ThreadError
      open.start
    end
    length = receive(connection, "keep-alive")
    @idle << connection
    length
  end

  def receive(http, connection)
    answer = http.request(Net::HTTP::Get.new(@uri.request_uri, "Connection" => connection))
    length = answer.body.bytesize
    return length if answer.code == "200" && length == @body

    raise "status #{answer.code} with #{length} bytes, not 200 with #{@body}"
  end
end

# How many bytes Net::HTTP reads from its socket at a time. It has no setting for that, only the
# constant; 1 is what the old experiment's `read_nonblock(1)` did.
def read_by(size)
  return if size.zero?

  Net::BufferedIO.send(:remove_const, :BUFSIZE)
  Net::BufferedIO.const_set(:BUFSIZE, size)
end

def sequential(client, count)
  Array.new(count) { client.get }.sum
end

def by_threads(client, count)
  Array.new(count) { Thread.new { client.get } }.sum(&:value)
end

def by_fibers(client, count)
  Sync { |task| Array.new(count) { task.async { client.get } }.sum(&:wait) }
end

# What a round allocates, as the memory_profiler gem counts it: objects that were born in it and the
# memory they hold, with the collector off so that none goes uncounted; then those that it leaves.
def allocations
  GC.start
  GC.disable
  born = GC.count
  ours = lambda do
    objects = bytes = 0
    ObjectSpace.each_object do |object|
      next unless ObjectSpace.allocation_generation(object) == born

      objects += 1
      bytes += ObjectSpace.memsize_of(object)
    end
    [objects, bytes]
  end
  ObjectSpace.trace_object_allocations do
    before = GC.stat(:total_allocated_objects)
    yield
    objects = GC.stat(:total_allocated_objects) - before
    _, bytes = ours.call
    GC.enable
    GC.start
    retained_objects, retained_bytes = ours.call
    { objects_allocated: objects, bytes_allocated: bytes,
      objects_retained: retained_objects, bytes_retained: retained_bytes }
  end
ensure
  GC.enable
end

def phase(orders, name)
  return unless orders["phases"] == "1"

  puts JSON.generate(phase: name)
  $stdout.flush
  $stdin.gets
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

def sample(orders)
  count = Integer(orders["units"])
  read_by(Integer(orders.fetch("read_size", 0)))
  client = Client.new(orders)
  way = { "sequential" => :sequential, "thread" => :by_threads, "task" => :by_fibers }
  fetch_all = method(way.fetch(orders["unit"]))
  received = 0
  start = now
  warmup = Integer(orders.fetch("warmup", 0))
  warmup.times { received += fetch_all.call(client, count) }
  warm = { rounds: warmup, ns: now - start }
  phase(orders, "base")
  collections = GC.count
  rounds = Array.new(Integer(orders.fetch("rounds", 1))) do
    start = now
    received += fetch_all.call(client, count)
    { create_ns: 0, run_ns: now - start }
  end
  collections = GC.count - collections
  phase(orders, "done")
  passes = warmup + rounds.size
  figures = {}
  if orders["count"] == "1"
    figures = allocations { received += fetch_all.call(client, count) }
    passes += 1
  end
  {
    units: count,
    switches_asked: 0,
    switches_made: 0,
    rounds: rounds,
    warmup: warm,
    gc: { on: true, collections: collections },
    figures: figures,
    requests: count * passes,
    body_bytes: received
  }
end

begin
  orders = ARGV.map { |argument| argument.split("=", 2) }.to_h
  answer = if orders["unit"] == "task"
             require "async"
             # One scheduler for all rounds, as a server would have it.
             Sync { sample(orders) }
           else
             sample(orders)
           end
  puts JSON.generate(sample: answer)
rescue ThreadError, FiberError, SystemCallError, IOError, RuntimeError, Timeout::Error => error
  puts JSON.generate(failure: { message: "#{error.class}: #{error.message}" })
  exit 1
end
