module belay.example/belay

go 1.19
