package system

import (
	"os"
	"os/user"
	"strconv"
)

// UserName is the name of the effective user, its number where it has none.
func UserName() string {
	id := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

func userHome() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.HomeDir
}
