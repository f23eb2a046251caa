//go:build race

package rds

func init() { raceDetector = true }
