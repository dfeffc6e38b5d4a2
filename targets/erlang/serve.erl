%% The serve workload of docs/targets.md: a process for each connection, over sockets whose HTTP the
%% virtual machine itself takes apart (`{packet, http_bin}`), and no more of a server than answers a
%% GET. A backend is asked over such sockets as well.
-module(serve).
-export([main/0]).

main() ->
    orders:answer(fun take/1).

take(Orders) ->
    Answer =
        case orders:word(Orders, "kind", "") of
            "plain" -> fun(Target) -> <<"carefree ", Target/binary, "\n">> end;
            "backend" -> asking(orders:word(Orders, "backend", ""));
            Kind -> error("there is no kind '" ++ Kind ++ "' of servers here")
        end,
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, {backlog, 1024} | socket()]),
    {ok, Port} = inet:port(Listener),
    spawn_link(fun() -> accept(Listener, Answer) end),
    io:format("{\"phase\":\"serving\",\"port\":~b}~n", [Port]),
    io:get_line(""),
    "\"units\":1,\"switches_asked\":0,\"switches_made\":0,\"rounds\":[]".

socket() ->
    [binary, {packet, http_bin}, {active, false}, {nodelay, true}].

accept(Listener, Answer) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    %% A socket is closed with the process that it belongs to.
    Process = spawn(fun() -> receive yours -> attend(Socket, Answer) end end),
    ok = gen_tcp:controlling_process(Socket, Process),
    Process ! yours,
    accept(Listener, Answer).

attend(Socket, Answer) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, {http_request, 'GET', {abs_path, Target}, _}} ->
            head(Socket, 0),
            Body = Answer(Target),
            Length = integer_to_binary(byte_size(Body)),
            gen_tcp:send(Socket, [<<"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ">>,
                                  Length, <<"\r\n\r\n">>, Body]),
            attend(Socket, Answer);
        _ ->
            gen_tcp:close(Socket)
    end.

%% Reads to the end of a head. Returns the length of the body that it tells of.
head(Socket, Length) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, http_eoh} -> Length;
        {ok, {http_header, _, 'Content-Length', _, Value}} -> head(Socket, binary_to_integer(Value));
        {ok, {http_header, _, _, _, _}} -> head(Socket, Length);
        _ -> exit(normal)
    end.

%% Has the backend make each answer.
asking(Backend) ->
    #{host := Host, port := Port} = uri_string:parse(Backend),
    Free = spawn_link(fun() -> keep([], Host, Port) end),
    fun(Target) ->
        Free ! {take, self()},
        Socket = receive {Free, Taken} -> Taken end,
        ok = gen_tcp:send(Socket, [<<"GET ">>, Target, <<" HTTP/1.1\r\nHost: ">>, Host, <<"\r\n\r\n">>]),
        {ok, {http_response, _, 200, _}} = gen_tcp:recv(Socket, 0),
        Length = head(Socket, 0),
        ok = inet:setopts(Socket, [{packet, raw}]),
        {ok, Body} = gen_tcp:recv(Socket, Length),
        ok = inet:setopts(Socket, [{packet, http_bin}]),
        Free ! {keep, Socket},
        Body
    end.

%% Owns all connections to the backend: they outlive those of clients, and one that is free serves
%% whichever request comes next.
keep(Free, Host, Port) ->
    receive
        {keep, Socket} ->
            keep([Socket | Free], Host, Port);
        {take, Process} when Free =:= [] ->
            {ok, Socket} = gen_tcp:connect(Host, Port, socket()),
            Process ! {self(), Socket},
            keep([], Host, Port);
        {take, Process} ->
            Process ! {self(), hd(Free)},
            keep(tl(Free), Host, Port)
    end.
