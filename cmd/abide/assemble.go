package main

import (
	"errors"
	"log/slog"
)

func openService(*slog.Logger, serverOptions) (*service, error) {
	return nil, errors.New("this build has no storage engine yet")
}
