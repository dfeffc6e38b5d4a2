%% Erlang: a ring of processes, files and a port, on its schedulers and its pool of threads.
main(_) ->
    Self = self(),
    Last = lists:foldl(fun(_, Next) -> spawn(fun() -> pass(Next) end) end, Self, lists:seq(1, 500)),
    [Last ! {token, N} || N <- lists:seq(1, 100)],
    Sum = lists:sum([receive {token, N} -> N end || _ <- lists:seq(1, 100)]),
    io:format("ring ~p~n", [Sum]),
    Workers = [spawn_monitor(fun() ->
        Name = "file" ++ integer_to_list(N),
        ok = file:write_file(Name, binary:copy(<<"x">>, N * 100)),
        {ok, Data} = file:read_file(Name),
        exit(byte_size(Data))
    end) || N <- lists:seq(1, 30)],
    io:format("files ~p~n", [lists:sum([receive {'DOWN', R, process, P, Size} -> Size end || {P, R} <- Workers])]),
    Work = [spawn_monitor(fun() -> exit(lists:foldl(fun(X, A) -> (A * 31 + X) rem 1000003 end, N, lists:seq(1, 200000))) end)
        || N <- lists:seq(1, 8)],
    io:format("computed ~p~n", [[receive {'DOWN', R, process, P, Value} -> Value end || {P, R} <- Work]]),
    io:format("port ~s", [os:cmd("echo said; exit 0")]),
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    spawn(fun() -> {ok, Socket} = gen_tcp:accept(Listener), {ok, Got} = gen_tcp:recv(Socket, 5), gen_tcp:send(Socket, Got) end),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Client, <<"hello">>),
    {ok, Echo} = gen_tcp:recv(Client, 5, 5000),
    io:format("tcp ~s~n", [Echo]).

pass(Next) -> receive Message -> Next ! Message, pass(Next) end.
