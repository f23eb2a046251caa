//go:build !linux

package link

var platformKinds []Kind
