(* Measures fibers and threads by the protocol of docs/targets.md: the gated workloads, and feed. *)

open Effect.Deep

external now : unit -> int = "carefree_now" [@@noalloc]
external usage : int -> int = "carefree_usage" [@@noalloc]

external give_way : unit -> unit = "carefree_give_way" [@@noalloc]

exception Failed of string

let warmup_units = 100

let orders =
  let order argument =
    Option.map
      (fun at ->
        ( String.sub argument 0 at,
          String.sub argument (at + 1) (String.length argument - at - 1) ))
      (String.index_opt argument '=')
  in
  List.filter_map order (List.tl (Array.to_list Sys.argv))

let word key missing = Option.value (List.assoc_opt key orders) ~default:missing
let number key missing = int_of_string (word key (string_of_int missing))

(* Stops, if that was ordered, until the lab has looked at this process. *)
let phase name =
  if number "phases" 0 = 1 then (
    Printf.printf "{\"phase\":\"%s\"}\n%!" name;
    try ignore (input_line stdin) with End_of_file -> ())

(* A fiber is a computation that waits by an effect, whose handler hands out what is left of it. *)
type _ Effect.t += Wait : unit Effect.t
type fiber = Ended | Waits of (unit, fiber) continuation

let start body =
  match_with
    (fun () ->
      body ();
      Ended)
    ()
    {
      retc = Fun.id;
      exnc = raise;
      effc =
        (fun (type a) (asked : a Effect.t) ->
          match asked with
          | Wait -> Some (fun (rest : (a, fiber) continuation) -> Waits rest)
          | _ -> None);
    }

let wait () = Effect.perform Wait

(* One round: what it took to create and to run the units, and the switches they made. *)
let fibers units switches alive =
  let began = now () in
  let body () =
    for _ = 1 to switches do
      wait ()
    done
  in
  let all = Array.make units Ended in
  for at = 0 to units - 1 do
    all.(at) <- start body
  done;
  let made = ref (Array.fold_left (fun sum -> function Waits _ -> sum + 1 | Ended -> sum) 0 all) in
  let created = now () - began in
  alive ();
  let began = now () in
  (* Each waits as often as it has switches to make; the last turn takes it to its end. *)
  for _ = 1 to switches do
    for at = 0 to units - 1 do
      match all.(at) with
      | Ended -> ()
      | Waits rest -> (
          let next = continue rest () in
          all.(at) <- next;
          match next with Waits _ -> incr made | Ended -> ())
    done
  done;
  (created, now () - began, !made)

let threads units switches alive =
  let lock = Mutex.create () in
  let all_born = Condition.create () and opened = Condition.create () in
  let born = ref 0 and is_open = ref false in
  (* The number of the unit that yielded last. One thread at a time runs OCaml. *)
  let turn = ref 0 and made = ref 0 in
  let body number =
    Mutex.lock lock;
    if not !is_open then incr made;
    incr born;
    if !born = units then Condition.signal all_born;
    while not !is_open do
      Condition.wait opened lock
    done;
    Mutex.unlock lock;
    (* Thread.yield returns at once where no other thread waits for the lock of the runtime, as those
       that have just been released do not yet: they come to wait for it now. *)
    give_way ();
    let switched = ref 0 in
    for _ = 2 to switches do
      turn := number;
      Thread.yield ();
      if !turn <> number then incr switched
    done;
    Mutex.protect lock (fun () -> made := !made + !switched)
  in
  let release () =
    Mutex.protect lock (fun () ->
        is_open := true;
        Condition.broadcast opened)
  in
  let began = now () in
  let all = ref [] in
  (try
     for number = 1 to units do
       all := Thread.create body number :: !all
     done
   with error ->
     release ();
     List.iter Thread.join !all;
     raise (Failed (Printf.sprintf "no more than %d threads could be started: %s" (List.length !all) (Printexc.to_string error))));
  Mutex.protect lock (fun () ->
      while !born < units do
        Condition.wait all_born lock
      done);
  let created = now () - began in
  alive ();
  let began = now () in
  release ();
  List.iter Thread.join !all;
  (created, now () - began, !made)

let sample fields = Printf.printf "{\"sample\":{%s}}\n%!" (String.concat "," fields)
let field name value = Printf.sprintf "\"%s\":%d" name value

let common units asked made times =
  [
    field "units" units;
    field "switches_asked" asked;
    field "switches_made" made;
    Printf.sprintf "\"rounds\":[%s]" (String.concat "," (List.rev times));
    "\"gc\":{\"on\":true}";
  ]

let counts () = List.mapi (fun which name -> (name, usage which)) [ "voluntary"; "involuntary"; "user_ns"; "system_ns" ]
let since before = List.map2 (fun (name, after) (_, before) -> field name (after - before)) (counts ()) before
let round_of created ran = Printf.sprintf "{\"create_ns\":%d,\"run_ns\":%d}" created ran

let gated round =
  let units = number "units" 1 and switches = number "switches" 1 and rounds = number "rounds" 1 in
  let warmups = number "warmup" 0 in
  let warmup = ref 0 in
  for _ = 1 to warmups do
    let created, ran, _ = round (min units warmup_units) switches ignore in
    warmup := !warmup + created + ran
  done;
  phase "base";
  let before = counts () in
  let times = ref [] and made = ref 0 in
  for at = 1 to rounds do
    let created, ran, switched = round units switches (fun () -> if at = 1 then phase "alive") in
    times := round_of created ran :: !times;
    made := !made + switched;
    if at = 1 then phase "done"
  done;
  let warm = [ Printf.sprintf "\"warmup\":{%s,%s}" (field "rounds" warmups) (field "ns" !warmup) ] in
  sample
    (common units (units * switches * rounds) !made !times
    @ since before
    @ if warmups > 0 then warm else [])

type person = { need : int; mutable iron : int; mutable calcium : int; mutable fiber : int }

let satisfied person = person.iron = person.need && person.calcium = person.need && person.fiber = person.need
let eaten person = person.iron + person.calcium + person.fiber

(* Nothing may be known of a person's counts beyond one bite, or a meal would be one addition. *)
let[@inline never] bite person =
  person.iron <- person.iron + 1;
  person.calcium <- person.calcium + 1;
  person.fiber <- person.fiber + 1

let feed_by_fibers people yields =
  let eat person () =
    while not (satisfied person) do
      bite person;
      if yields then wait ()
    done
  in
  (* Those that wait are kept, in their order. *)
  let hungry = Array.make (Array.length people) Ended in
  let left = ref 0 and made = ref 0 in
  let keep = function
    | Ended -> ()
    | waits ->
        hungry.(!left) <- waits;
        incr left;
        incr made
  in
  Array.iter (fun person -> keep (start (eat person))) people;
  while !left > 0 do
    let turns = !left in
    left := 0;
    for at = 0 to turns - 1 do
      match hungry.(at) with Ended -> () | Waits rest -> keep (continue rest ())
    done
  done;
  !made

let feed_by_threads people yields =
  let turn = ref 0 and made = ref 0 and lock = Mutex.create () in
  let eat (number, person) =
    let switched = ref 0 in
    while not (satisfied person) do
      bite person;
      if yields then (
        turn := number;
        Thread.yield ();
        if !turn <> number then incr switched)
    done;
    Mutex.protect lock (fun () -> made := !made + !switched)
  in
  Array.iter Thread.join (Array.mapi (fun number person -> Thread.create eat (number, person)) people);
  !made

let feed feed_all =
  let count = number "units" 1 and nutrients = number "nutrients" 1 and rounds = number "rounds" 1 in
  let yields = number "yields" 0 = 1 in
  let asked = if yields then count * nutrients * rounds else 0 in
  let made = ref 0 and all = ref 0 and times = ref [] in
  let before = counts () in
  for _ = 1 to rounds do
    let people = Array.init count (fun _ -> { need = nutrients; iron = 0; calcium = 0; fiber = 0 }) in
    let began = now () in
    made := !made + feed_all people yields;
    times := round_of 0 (now () - began) :: !times;
    all := !all + Array.fold_left (fun sum person -> sum + eaten person) 0 people
  done;
  sample (common count asked !made !times @ since before @ [ field "eaten" !all ])

let () =
  try
    match (word "unit" "", word "workload" "alloc") with
    | "fiber", "feed" -> feed feed_by_fibers
    | "thread", "feed" -> feed feed_by_threads
    | "fiber", _ -> gated fibers
    | "thread", _ -> gated threads
    | other, _ -> raise (Failed (Printf.sprintf "there is no unit '%s'; the units are fiber and thread" other))
  with Failed message ->
    Printf.printf "{\"failure\":{\"message\":%S}}\n%!" message;
    exit 1
