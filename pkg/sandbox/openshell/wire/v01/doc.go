// Package v01 promises the messages of the 0.1.x wire, as far as they are used
// here, with the numbers and types that they have there.
package v01
