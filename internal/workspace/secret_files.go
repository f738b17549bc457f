package workspace

import (
	"path"
	"strings"
)

// secretReason says why an untracked file looks as if it held a secret, "" where it does not. Names are compared in lower case.
func secretReason(file string) string {
	p := strings.ToLower(file)
	name := path.Base(p)
	switch name {
	case ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults":
		return ""
	case ".env", ".envrc":
		return "environment file"
	case ".npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials", ".dockercfg", ".vault-token", ".terraformrc", ".htpasswd", ".pgpass", ".my.cnf", ".s3cfg", ".boto",
		".secrets", "secrets.yml", "secrets.yaml", "secrets.json", "secrets.toml", ".credentials.json", "credentials.tfrc.json", "settings-security.xml",
		"application_default_credentials.json", "credentials.json", "service-account.json", "service_account.json", "auth.json":
		return "credentials"
	case "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk":
		return "private key"
	case "kubeconfig", "kubeconfig.yaml", "kubeconfig.yml":
		return "cluster credentials"
	}
	for _, end := range []string{".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx", ".asc", ".agekey"} {
		if strings.HasSuffix(name, end) {
			return "key"
		}
	}
	for _, end := range []string{"/.kube/config", "/.docker/config.json", "/.config/gh/hosts.yml", "/.cargo/credentials", "/.cargo/credentials.toml", "/.gem/credentials"} {
		if strings.HasSuffix("/"+p, end) {
			return "credentials"
		}
	}
	for _, dir := range []string{"/.aws/", "/.azure/", "/.config/gcloud/", "/.gnupg/"} {
		if strings.Contains("/"+p, dir) {
			return "credentials"
		}
	}
	switch {
	case strings.HasPrefix(name, "client_secret") && strings.HasSuffix(name, ".json"), strings.HasSuffix(name, ".auto.tfvars"), name == "terraform.tfvars":
		return "credentials"
	case strings.HasPrefix(name, ".env."), strings.HasSuffix(name, ".env"):
		return "environment file"
	case strings.HasSuffix(name, ".tfstate"), strings.HasSuffix(name, ".tfstate.backup"):
		return "infrastructure state"
	case strings.HasSuffix(name, ".kubeconfig"):
		return "cluster credentials"
	case strings.Contains("/"+p, "/.ssh/") && !strings.HasSuffix(name, ".pub"):
		return "private key"
	}
	return ""
}
