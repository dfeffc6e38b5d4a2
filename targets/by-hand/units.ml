(* Switch and allocation of OCaml 5, by hand: nanoseconds on standard output. *)
open Effect.Deep

type _ Effect.t += Stop : unit Effect.t
type left = Nothing | Rest of (unit, left) continuation

let handler =
  {
    retc = (fun () -> Nothing);
    exnc = raise;
    effc = (fun (type a) (stop : a Effect.t) -> match stop with Stop -> Some (fun (k : (a, left) continuation) -> Rest k) | _ -> None);
  }

let go = function Rest k -> continue k () | Nothing -> Nothing

let fiber what count =
  if what = "switch" then (
    let unit () = match_with (fun () -> while true do Effect.perform Stop done) () handler in
    let all = [| unit (); unit () |] in
    let start = Unix.gettimeofday () in
    for _ = 1 to count / 2 do
      all.(0) <- go all.(0);
      all.(1) <- go all.(1)
    done;
    Unix.gettimeofday () -. start)
  else
    let start = Unix.gettimeofday () in
    let two () = Effect.perform Stop; Effect.perform Stop in
    let all = Array.init count (fun _ -> match_with two () handler) in
    for _ = 1 to 2 do
      Array.iteri (fun i unit -> all.(i) <- go unit) all
    done;
    Unix.gettimeofday () -. start

let thread what count =
  let start = Unix.gettimeofday () in
  (if what = "switch" then
     let each () = for _ = 1 to count / 2 do Thread.yield () done in
     List.iter Thread.join (List.init 2 (fun _ -> Thread.create each ()))
   else
     let two () = Thread.yield (); Thread.yield () in
     List.iter Thread.join (List.init count (fun _ -> Thread.create two ())));
  Unix.gettimeofday () -. start

let () =
  let count = int_of_string Sys.argv.(3) in
  let took = (if Sys.argv.(2) = "fiber" then fiber else thread) Sys.argv.(1) count in
  Printf.printf "%f\n" (took *. 1e9 /. float count)
