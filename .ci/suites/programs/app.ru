# An application of Rack's that waits as one would that asks a database.
run(lambda do |environment|
  sleep 0.002 if environment["PATH_INFO"] == "/waits"
  [200, { "content-type" => "text/plain", "content-length" => "2" }, ["ok"]]
end)
