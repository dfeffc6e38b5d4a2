module carefree/httpbench

go 1.20
