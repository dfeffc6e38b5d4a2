# frozen_string_literal: true

# The `serve` workload of docs/targets.md: a TCPServer with a Thread for each connection, and the
# least of HTTP that answers a GET. (WEBrick is a gem since Ruby 3.0.) A backend is asked by Net::HTTP;
# its connections are kept, and one that is free serves whichever request comes next.

require 'json'
require 'socket'

ORDERS = ARGV.to_h { |argument| argument.split('=', 2) }

# Asks the backend.
class Backend
  def initialize(url)
    @uri = URI(url)
    @free = Queue.new
  end

  def get(target)
    connection = free
    answer = connection.get(target)
    raise IOError, "the backend answered #{answer.code}" if answer.code != '200'

    @free.push(connection)
    answer.body
  end

  private

  def free
    @free.pop(true)
  rescue ThreadError
    # No proxy stands between. It would connect anew after two seconds of silence.
    connection = Net::HTTP.new(@uri.host, @uri.port, nil)
    connection.keep_alive_timeout = 600
    connection.start
  end
end

def attend(stream, backend)
  stream.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
  while (line = stream.gets("\r\n"))
    target = line.split(' ', 3)[1]
    while (field = stream.gets("\r\n")) && field != "\r\n"
      # Nothing in the head changes the answer.
    end
    body = backend ? backend.get(target) : "carefree #{target}\n"
    stream.write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" \
                 "Content-Length: #{body.bytesize}\r\n\r\n#{body}")
  end
rescue SystemCallError, IOError
  # The client has closed.
ensure
  stream.close
end

def serve
  backend =
    case ORDERS['kind']
    when 'plain' then nil
    when 'backend'
      require 'net/http' # only here: it takes memory
      Backend.new(ORDERS['backend'])
    else raise ArgumentError, "there is no kind '#{ORDERS['kind']}' of servers here"
    end
  server = TCPServer.new('127.0.0.1', 0)
  server.listen(1024)
  Thread.new { loop { Thread.new(server.accept) { |stream| attend(stream, backend) } } }
  puts JSON.generate(phase: 'serving', port: server.addr[1])
  $stdout.flush
  $stdin.gets
end

begin
  serve
  puts JSON.generate(sample: { units: 1, switches_asked: 0, switches_made: 0, rounds: [] })
rescue StandardError => e
  puts JSON.generate(failure: { message: "#{e.class}: #{e.message}" })
  exit 1
end
