package owned

import (
	"math"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/targets"
)

// HardenedHostConfig is where the configuration of every container of ours begins: within its limits, without capabilities and without
// a way to new ones, never started again by the engine, with no process of the engine's inside, and with no log, since
// nothing of ours writes to its streams.
func HardenedHostConfig(limits targets.Resources) *container.HostConfig {
	off, none := false, int64(0)
	h := &container.HostConfig{
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, Init: &off, LogConfig: container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled}, Tmpfs: map[string]string{},
		Resources: container.Resources{Memory: limits.MemoryBytes, PidsLimit: &none},
	}
	switch thousandths := int64(math.Round(limits.CPUs * 1000)); {
	case thousandths >= 10:
		h.NanoCPUs = thousandths * 1_000_000
	case thousandths > 0: // the engine refuses less than 0.01 in NanoCPUs: within its 100 ms, the kernel's least share is 1 ms
		h.CPUPeriod, h.CPUQuota = maxQuotaPeriod, thousandths*1000
	}
	if limits.SwapBytes != nil {
		h.MemorySwap = limits.MemoryBytes + *limits.SwapBytes
	}
	if limits.PIDs > 0 {
		h.PidsLimit = &limits.PIDs
	}
	return h
}

// maxQuotaPeriod is the longest period that the kernel takes for a quota, in µs.
const maxQuotaPeriod = 1_000_000
