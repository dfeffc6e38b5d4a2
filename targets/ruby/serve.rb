# frozen_string_literal: true

# The `serve` workload of docs/targets.md, by three servers: a TCPServer with a Thread for each
# connection, and the least of HTTP that answers a GET; Puma, with a pool of threads; and the server of
# async-http, which is falcon's, with a task for each connection. Threads ask a backend by Net::HTTP,
# tasks by async-http's client; connections are kept, and one that is free serves whichever request
# comes next.

require 'json'
require 'socket'

ORDERS = ARGV.to_h { |argument| argument.split('=', 2) }

# Asks the backend. (A gem takes a `Backend` of ours for its own.)
class Upstream
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

def serve_by_threads(backend)
  server = TCPServer.new('127.0.0.1', 0)
  server.listen(1024)
  Thread.new { loop { Thread.new(server.accept) { |stream| attend(stream, backend) } } }
  server.addr[1]
end

def serve_by_puma(backend)
  require 'puma'
  require 'puma/server'

  app = lambda do |env|
    target = env['PATH_INFO']
    body = backend ? backend.get(target) : "carefree #{target}\n"
    [200, { 'Content-Type' => 'text/plain' }, [body]]
  end
  # As many threads as requests may be under way; idle connections have none, and are kept.
  options = { min_threads: 0, max_threads: Integer(ORDERS['connections'] || 5), persistent_timeout: 600 }
  silent = Puma.const_defined?(:LogWriter) ? Puma::LogWriter.null : Puma::Events.null
  server = if Puma.const_defined?(:LogWriter)
             Puma::Server.new(app, nil, options.merge(log_writer: silent))
           else
             Puma::Server.new(app, silent, options)
           end
  socket = server.add_tcp_listener('127.0.0.1', 0, true, 1024)
  server.run
  socket.addr[1]
end

# Its own thread runs the scheduler: a read of standard input would stop all tasks.
def serve_by_tasks(url)
  require 'async/http/client'
  require 'async/http/endpoint'
  require 'async/http/server'
  require 'async/io/shared_endpoint'

  http1 = Async::HTTP::Protocol::HTTP1
  port = Queue.new
  Thread.new do
    Async do
      bound = Async::IO::SharedEndpoint.bound(Async::IO::Endpoint.tcp('127.0.0.1', 0), backlog: 1024)
      backend = url && Async::HTTP::Client.new(Async::HTTP::Endpoint.parse(url, protocol: http1))
      server = Async::HTTP::Server.for(bound, protocol: http1, scheme: 'http') do |request|
        body = backend ? ask(backend, request.path) : "carefree #{request.path}\n"
        Protocol::HTTP::Response[200, { 'content-type' => 'text/plain' }, [body]]
      end
      server.run
      port << bound.wrappers.first.local_address.ip_port
    end
  end
  port.pop
end

def ask(backend, target)
  answer = backend.get(target)
  raise IOError, "the backend answered #{answer.status}" if answer.status != 200

  answer.read
end

def serve
  url =
    case ORDERS['kind']
    when 'plain' then nil
    when 'backend' then ORDERS['backend']
    else raise ArgumentError, "there is no kind '#{ORDERS['kind']}' of servers here"
    end
  port =
    if ORDERS['unit'] == 'task'
      serve_by_tasks(url)
    else
      require 'net/http' if url # only here: it takes memory
      backend = url && Upstream.new(url)
      ORDERS['unit'] == 'puma' ? serve_by_puma(backend) : serve_by_threads(backend)
    end
  puts JSON.generate(phase: 'serving', port: port)
  $stdout.flush
  $stdin.gets
end

begin
  serve
  puts JSON.generate(sample: { units: 1, switches_asked: 0, switches_made: 0, rounds: [] })
  $stdout.flush
  # Puma's threads would be waited for.
  exit!(0)
rescue StandardError => e
  puts JSON.generate(failure: { message: "#{e.class}: #{e.message}" })
  exit 1
end
