%% The fetch workload of docs/targets.md: GETs by httpc, one after the other or by a process of
%% Erlang each.
-module(fetch).
-export([main/0]).

main() ->
    orders:answer(fun take/1).

take(Orders) ->
    {ok, _} = application:ensure_all_started(inets),
    Count = orders:number(Orders, "units", 1),
    case orders:number(Orders, "read_size", 0) of
        0 -> ok;
        _ -> error("httpc reads as much as there is")
    end,
    Keep = orders:word(Orders, "keep_alive", "0") =:= "1",
    %% Its defaults put up to five requests on one connection and two connections to a host.
    ok = httpc:set_options([{max_sessions, Count}, {max_keep_alive_length, 0},
                            {max_pipeline_length, 0}, {keep_alive_timeout, 60000}]),
    Headers = [{"connection", case Keep of true -> "keep-alive"; false -> "close" end}],
    Errand = {maps:get("url", Orders), Headers, orders:number(Orders, "body", 0)},
    Pass =
        case orders:word(Orders, "unit", "") of
            "sequential" -> fun() -> in_turn(Errand, Count, Keep) end;
            _ -> fun() -> crowd(Errand, Count) end
        end,
    Warmup = orders:number(Orders, "warmup", 0),
    Warm = [timed(Pass) || _ <- lists:seq(1, Warmup)],
    orders:phase(Orders, "base"),
    Rounds = [timed(Pass) || _ <- lists:seq(1, orders:number(Orders, "rounds", 1))],
    orders:phase(Orders, "done"),
    io_lib:format(
        "\"units\":~b,\"switches_asked\":0,\"switches_made\":0,\"rounds\":[~s],"
        "\"warmup\":{\"rounds\":~b,\"ns\":~b},\"gc\":{\"on\":true},"
        "\"requests\":~b,\"body_bytes\":~b",
        [Count, orders:rounds([{0, Time} || {Time, _} <- Rounds]), Warmup,
         lists:sum([Time || {Time, _} <- Warm]), Count * length(Warm ++ Rounds),
         lists:sum([Bytes || {_, Bytes} <- Warm ++ Rounds])]).

timed(Pass) ->
    Start = erlang:monotonic_time(nanosecond),
    Bytes = Pass(),
    Time = erlang:monotonic_time(nanosecond) - Start,
    settle(),
    {Time, Bytes}.

in_turn(Errand, Count, Keep) ->
    lists:sum([begin
                   Bytes = fetch_one(Errand),
                   Keep andalso settle(),
                   Bytes
               end || _ <- lists:seq(1, Count)]).

crowd(Errand, Count) ->
    Fetcher = self(),
    Crowd = [spawn_link(fun() -> Fetcher ! {self(), fetch_one(Errand)} end)
             || _ <- lists:seq(1, Count)],
    lists:sum([receive {Process, Bytes} -> Bytes end || Process <- Crowd]).

fetch_one({Url, Headers, Body}) ->
    case httpc:request(get, {Url, Headers}, [], [{body_format, binary}]) of
        {ok, {{_, 200, _}, _, Answer}} when byte_size(Answer) =:= Body -> Body;
        {ok, {{_, Status, _}, _, Answer}} ->
            error({status, Status, with, byte_size(Answer), bytes, 'not', 200, with, Body});
        {error, Reason} -> error(Reason)
    end.

%% httpc hands over an answer before it notes that the answer's connection is free: a request that
%% follows at once is sometimes given another. A handler that answers us has noted it.
settle() ->
    [catch sys:get_state(Handler)
     || {_, Handler, _, _} <- supervisor:which_children(httpc_handler_sup), is_pid(Handler)],
    ok.
