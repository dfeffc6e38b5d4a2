# Uses an extension with fibers inside from many threads of Ruby's: test.rb NAME, or --list.
require "sample"
require "socket"

def check(what, *said)
  abort("not so: #{said.inspect}") unless what
end

def crowd(count)
  count.times.map { |n| Thread.new { yield n } }.map(&:value)
end

TESTS = {
  "fibers" => -> { check(Sample.fibers?) },
  "sleepers" => lambda do
    counted = 0
    counter = Thread.new { loop { counted += 1; sleep 0.001 } }
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    times = crowd(20) { Sample.sleepers(500, 200) }
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    counter.kill.join
    # One after the other it would be 2,000 seconds; and other threads go on meanwhile.
    check(times.all? { |each| each >= 0.2 && each < 20 } && took < 30 && counted > 20, times, took, counted)
  end,
  "sleepers-with-the-lock" => -> { check((0.02...20).cover?(Sample.sleepers_with_the_lock(1000, 20))) },
  "sockets" => lambda do
    server = TCPServer.new("127.0.0.1", 0)
    server.listen(500)
    Thread.new do
      loop do
        connection = server.accept
        Thread.new { connection.write("answer #{connection.gets.chomp}"); connection.close }
      end
    end
    got = crowd(4) { Sample.fetch(server.addr[1], 50) }
    check(got == [50] * 4, got)
  end,
  "meetings" => -> { got = crowd(10) { |n| Sample.meetings(50 + n) }; check(got == (50...60).to_a, got) },
  "panics" => lambda do
    $stderr.reopen(File::NULL)
    ended = crowd(5) { Sample.panics }
    check(ended.all?, ended)
  end,
  "fork" => lambda do
    Sample.sleepers(100, 5)
    child = fork { exit!(Sample.meetings(30) == 30 ? 7 : 1) }
    _, status = Process.wait2(child)
    check(status.exitstatus == 7 && Sample.meetings(30) == 30, status)
  end,
  "end" => -> { 5.times { Thread.new { Sample.sleepers(100, 300) } }; sleep 0.05; exit },
}.freeze

if ARGV == ["--list"]
  puts TESTS.keys
else
  TESTS.fetch(ARGV.fetch(0)).call
end
