// Package v00 promises the messages of the 0.0.x wire, as far as they are used
// here, with the numbers and types that they have there.
package v00
