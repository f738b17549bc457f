// Package crash names the places at which a test may kill this process: before and after every intent, effect, record
// and commit. Ordinary builds compile the points away; builds with the tag `crashpoints` obey three variables:
//
//	LAUFWERK_CRASH=name#n     SIGKILL of the own process at the n-th time (from 1) that the point is reached
//	LAUFWERK_CRASH=#n         SIGKILL at the n-th point (from 1) that it reaches, whatever its name
//	LAUFWERK_CRASH_ONCE=file  only one of the processes with this variable dies: the one that makes the file
//	LAUFWERK_CRASH_LOG=file   append a line `name#n` for every point reached
//
// Names are `package/verb-before|after-what`, for example `journal/before-append`.
package crash
