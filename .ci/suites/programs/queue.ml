(* Threads of OCaml's, which share a lock that a thread of the runtime's has them give up by a tick: a queue, a
   pipe, a thread that computes. *)
let m = Mutex.create () let c = Condition.create () let q = Queue.create ()
let put x = Mutex.lock m; Queue.push x q; Condition.signal c; Mutex.unlock m
let get () = Mutex.lock m; while Queue.is_empty q do Condition.wait c m done; let x = Queue.pop q in Mutex.unlock m; x
let () =
  let makers = List.init 4 (fun _ -> Thread.create (fun () -> for i = 1 to 5000 do ignore (Array.make 200 0); put i done) ()) in
  let sum = ref 0 in
  let takers = List.init 4 (fun _ -> Thread.create (fun () -> let s = ref 0 in for _ = 1 to 5000 do s := !s + get () done; Mutex.lock m; sum := !sum + !s; Mutex.unlock m) ()) in
  List.iter Thread.join makers; List.iter Thread.join takers;
  Gc.full_major ();
  Printf.printf "%d\n%!" !sum;
  let r, w = Unix.pipe () in
  let t = Thread.create (fun () -> let b = Bytes.create 5 in ignore (Unix.read r b 0 5); print_endline (Bytes.to_string b)) () in
  Thread.delay 0.01; ignore (Unix.write_substring w "hello" 0 5); Thread.join t;
  let spin = ref true in
  let s = Thread.create (fun () -> while !spin do ignore (ref 1) done) () in
  Thread.delay 0.1; spin := false; Thread.join s;
  print_endline "done"
