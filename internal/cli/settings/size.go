package settings

// Size reads a size in bytes as it is written in settings: 128MiB, 500000.
func Size(text string) (int64, bool) {
	v, ok := parseBytes(text, "")
	return v.(int64), ok
}
