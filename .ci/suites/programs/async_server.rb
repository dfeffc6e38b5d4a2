# The server that Falcon stands on, with workers that are threads.
require "async"
require "async/http/server"
require "async/http/endpoint"
require "async/http/protocol/response"

port = Integer(ARGV.fetch(0))
endpoint = Async::HTTP::Endpoint.parse("http://127.0.0.1:#{port}")
serve = lambda do
  Async do
    Async::HTTP::Server.for(endpoint) do |request|
      sleep 0.002 if request.path == "/waits"
      Protocol::HTTP::Response[200, { "content-type" => "text/plain" }, ["ok"]]
    end.run
  end
end
trap("TERM") { exit }
2.times.map { Thread.new(&serve) }.each(&:join)
