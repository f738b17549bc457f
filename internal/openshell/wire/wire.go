// Package wire is the gateway's protocol: the messages and calls of OpenShell 0.0.116 that laufwerk uses, under their official
// names and numbers. The Go code is made from the .proto files (make update-wire); what of them the official client does not
// know in the same way, a test finds.
package wire
