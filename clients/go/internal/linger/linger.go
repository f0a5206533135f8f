// Package linger is for adapters of frameworks that use a request's context again for another one.
package linger

import "context"

type key struct{}

// On makes the middleware stay with a request until its handler has returned. The handler of one that
// has had its answer, after its deadline, still has the framework's context.
func On(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Wanted says whether On was called.
func Wanted(ctx context.Context) bool { return ctx.Value(key{}) != nil }
