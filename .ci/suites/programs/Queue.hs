-- Threads of Haskell's, over threads of its runtime's and threads of the system's: variables, a channel,
-- collections, time limits, a child process.
import Control.Concurrent
import Control.Exception
import Control.Monad
import System.Mem
import System.Timeout
import System.IO
import System.Process
work :: Int -> Int
work n = sum [ x * x `mod` 7 | x <- [1..n] ]
main :: IO ()
main = do
  hSetBuffering stdout LineBuffering
  vs <- forM [1..50] $ \i -> do { v <- newEmptyMVar; _ <- forkIO (do { evaluate (work (20000 + i)) >>= putMVar v }); return v }
  rs <- mapM takeMVar vs
  print (sum rs)
  os <- forM [1..20] $ \i -> do { v <- newEmptyMVar; _ <- forkOS (do { threadDelay 2000; putMVar v (i * i) }); return v }
  os' <- mapM takeMVar os
  print (sum os' :: Int)
  c <- newChan
  forM_ [1..8] $ \k -> forkOS $ forM_ [1..500] $ \j -> writeChan c (k * j)
  xs <- replicateM 4000 (readChan c)
  print (sum xs :: Int)
  performGC
  t <- timeout 50000 (threadDelay 10000000)
  print t
  out <- readProcess "echo" ["from a child"] ""
  putStr out
  r <- try (newEmptyMVar >>= takeMVar) :: IO (Either BlockedIndefinitelyOnMVar ())
  print r
