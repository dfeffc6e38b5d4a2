# Ruby loads a library with fibers inside, by Fiddle.
require "fiddle"

library = Fiddle.dlopen(ARGV[0])
int = Fiddle::TYPE_INT
sleepers = Fiddle::Function.new(library["sleepers"], [int, int], Fiddle::TYPE_DOUBLE)
waiters = Fiddle::Function.new(library["waiters"], [int], int)
meetings = Fiddle::Function.new(library["meetings"], [int], int)
has_fibers = Fiddle::Function.new(library["has_fibers"], [], int)
raise "no fibers" unless has_fibers.call == 1
# Each of them parks, and keeps no thread.
raise "they keep threads" unless waiters.call(1000) < 200
sleepers.call(100, 5)
raise "they did not meet" unless meetings.call(200) == 200

threads = 8.times.map { Thread.new { meetings.call(50) } }
raise "not from threads" unless threads.map(&:value) == [50] * 8

child = fork { exit!(meetings.call(20) == 20 ? 7 : 1) }
Process.wait(child)
raise "not in a child" unless $?.exitstatus == 7
puts "done"
