#lang racket
; Racket's futures and places, which run on threads of the system's.
(require racket/place racket/future syntax/location)
(provide go main)
(define (go channel)
  (define number (place-channel-get channel))
  (define made (for/list ([i 100000]) i))
  (place-channel-put channel (+ number (length made))))
(define (main)
  (define sums
    (for/list ([i 8]) (future (lambda () (for/fold ([sum 0]) ([j (in-range 2000000)]) (+ sum j))))))
  (displayln (apply + (map touch sums)))
  (define places (for/list ([i 4]) (dynamic-place (quote-module-path) 'go)))
  (for ([each places] [i 4]) (place-channel-put each i))
  (displayln (for/list ([each places]) (place-channel-get each)))
  (for-each place-wait places))
(module+ main (main))
