package runs

import (
	"context"
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/schema"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// checkOutput holds a workflow to the schema of its result: one that does not fit it is the workflow's failure.
func checkOutput(p workflow.Program, output json.RawMessage) (workflow.Program, error) {
	if len(output) == 0 {
		return p, nil
	}
	sc, err := schema.Parse(output)
	if err != nil {
		return nil, failure.New(failure.ProjectInvalid, "the output schema of the workflow: %v", err)
	}
	return outputCheckedProgram{p, sc}, nil
}

type outputCheckedProgram struct {
	workflow.Program
	schema *schema.Schema
}

func (o outputCheckedProgram) Step(ctx context.Context, m *protocol.Message) ([]protocol.Message, error) {
	out, err := o.Program.Step(ctx, m)
	for i := range out {
		if out[i].Type != protocol.TypeDone {
			continue
		}
		value := out[i].Value
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
		if misfit := o.schema.Check(value); misfit != nil {
			e := failure.New(failure.OutputInvalid, "the workflow's result does not fit its output schema: %v", misfit)
			out[i] = protocol.Message{Type: protocol.TypeError, Error: workflow.WireError(e)}
		}
	}
	return out, err
}
