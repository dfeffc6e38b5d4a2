(* The serve workload of docs/targets.md: cohttp's server on Lwt, whose promises wait at one event loop.
   cohttp's client makes a connection for each request, so a backend is asked by the least of HTTP over
   Lwt's channels, which are kept; one that is free serves whichever request comes next. *)

open Lwt.Infix
open Cohttp_lwt_unix

let orders =
  List.filter_map
    (fun argument ->
      Option.map
        (fun at ->
          ( String.sub argument 0 at,
            String.sub argument (at + 1) (String.length argument - at - 1) ))
        (String.index_opt argument '='))
    (List.tl (Array.to_list Sys.argv))

let order key = Option.value (List.assoc_opt key orders) ~default:""

(* Connections to the backend that are free. *)
let free = Stack.create ()

let connect host =
  let at = String.index host ':' in
  let address = Unix.inet_addr_of_string (String.sub host 0 at) in
  let port = int_of_string (String.sub host (at + 1) (String.length host - at - 1)) in
  Lwt_io.open_connection (Unix.ADDR_INET (address, port))

let rec fields input =
  Lwt_io.read_line input >>= function
  | "" -> Lwt.return_nil
  | field -> fields input >|= List.cons field

let length_of fields =
  let value field =
    match String.index_opt field ':' with
    | Some at when String.lowercase_ascii (String.sub field 0 at) = "content-length" ->
        Some (int_of_string (String.trim (String.sub field (at + 1) (String.length field - at - 1))))
    | _ -> None
  in
  List.find_map value fields

let ask host target =
  (match Stack.pop_opt free with Some kept -> Lwt.return kept | None -> connect host)
  >>= fun ((input, output) as connection) ->
  Lwt_io.write output (Printf.sprintf "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" target host) >>= fun () ->
  Lwt_io.flush output >>= fun () ->
  Lwt_io.read_line input >>= fun status ->
  fields input >>= fun fields ->
  match (String.split_on_char ' ' status, length_of fields) with
  | _ :: "200" :: _, Some length ->
      let body = Bytes.create length in
      Lwt_io.read_into_exactly input body 0 length >|= fun () ->
      Stack.push connection free;
      Bytes.to_string body
  | _ -> Lwt.fail_with ("the backend answered " ^ status)

let answer backend _ request _ =
  let target = Request.resource request in
  (match backend with
  | Some backend -> ask backend target
  | None -> Lwt.return ("carefree " ^ target ^ "\n"))
  >>= fun body ->
  let headers = Cohttp.Header.init_with "content-type" "text/plain" in
  Server.respond_string ~headers ~status:`OK ~body ()

let serve backend =
  let socket = Lwt_unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
  Lwt_unix.bind socket (Unix.ADDR_INET (Unix.inet_addr_loopback, 0)) >>= fun () ->
  Lwt_unix.listen socket 1024;
  let port = match Lwt_unix.getsockname socket with Unix.ADDR_INET (_, port) -> port | _ -> 0 in
  let server = Server.create ~mode:(`TCP (`Socket socket)) (Server.make ~callback:(answer backend) ()) in
  Printf.printf "{\"phase\":\"serving\",\"port\":%d}\n%!" port;
  (* Until the lab writes a line, or closes it. *)
  Lwt.pick [ server; (Lwt_io.read_line_opt Lwt_io.stdin >|= ignore) ]

let () =
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  match
    match (order "kind", order "unit") with
    | "plain", "promise" -> Lwt_main.run (serve None)
    | "backend", "promise" -> 
        let url = order "backend" in
        let scheme = String.length "http://" in
        Lwt_main.run (serve (Some (String.sub url scheme (String.length url - scheme))))
    | kind, "promise" -> failwith (Printf.sprintf "there is no kind '%s' of servers here" kind)
    | _, unit -> failwith (Printf.sprintf "there is no unit '%s'; the unit is promise" unit)
  with
  | () ->
      print_endline
        "{\"sample\":{\"units\":1,\"switches_asked\":0,\"switches_made\":0,\"rounds\":[]}}";
      Unix._exit 0
  | exception error ->
      let told = match error with Failure told -> told | error -> Printexc.to_string error in
      Printf.printf "{\"failure\":{\"message\":%S}}\n%!" told;
      Unix._exit 1
