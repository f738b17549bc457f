// Everything that a module of ours exports has exactly the designed type. names.mjs holds that the names are the same.
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<_ extends true>(): void {}

import type * as ours from "@laufwerk/sdk";
import type * as designed from "designed/sdk";
import type * as ourHarness from "@laufwerk/sdk/harness";
import type * as designedHarness from "designed/sdk/harness";
import type * as ourLocal from "@laufwerk/execution/local";
import type * as designedLocal from "designed/execution/local";
import type * as ourDocker from "@laufwerk/execution/docker";
import type * as designedDocker from "designed/execution/docker";
import type * as ourOpenShell from "@laufwerk/execution/openshell";
import type * as designedOpenShell from "designed/execution/openshell";

// Values.
same<Same<typeof ours.defineConfig, typeof designed.defineConfig>>();
same<Same<typeof ours.defineWorkflow, typeof designed.defineWorkflow>>();
same<Same<typeof ours.Workspace, typeof designed.Workspace>>();
same<Same<typeof ours.Session, typeof designed.Session>>();
same<Same<typeof ours.Human, typeof designed.Human>>(); // ours keeps literal choices (const V), which the comparison does not see
same<Same<typeof ours.Host, typeof designed.Host>>();
same<Same<typeof ours.Clock, typeof designed.Clock>>();
// `all` is compared as text by names.mjs: a mapped type over its own parameter is never the same as another.
same<Same<typeof import("@laufwerk/sdk/harness/codex"), typeof import("designed/sdk/harness/codex")>>();
same<Same<typeof import("@laufwerk/sdk/harness/claude-code"), typeof import("designed/sdk/harness/claude-code")>>();
same<Same<typeof import("@laufwerk/sdk/harness/command"), typeof import("designed/sdk/harness/command")>>();
same<Same<typeof import("@laufwerk/execution"), typeof import("designed/execution")>>();
same<Same<typeof import("@laufwerk/execution/local"), typeof import("designed/execution/local")>>();
same<Same<typeof import("@laufwerk/execution/docker"), typeof import("designed/execution/docker")>>();
same<Same<typeof import("@laufwerk/execution/openshell"), typeof import("designed/execution/openshell")>>();
same<Same<typeof import("@laufwerk/execution/internal"), typeof import("designed/execution/internal")>>();

// Classes.
same<Same<typeof ours.LaufwerkError, typeof designed.LaufwerkError>>();
same<Same<typeof ours.AgentFailed, typeof designed.AgentFailed>>();
same<Same<typeof ours.CommandTimeout, typeof designed.CommandTimeout>>();
same<Same<typeof ours.OutputTooLarge, typeof designed.OutputTooLarge>>();
same<Same<typeof ours.OutputInvalid, typeof designed.OutputInvalid>>();
same<Same<typeof ours.OutcomeUnknown, typeof designed.OutcomeUnknown>>();
same<Same<typeof ours.SessionLost, typeof designed.SessionLost>>();
same<Same<typeof ours.WorkspaceLost, typeof designed.WorkspaceLost>>();
same<Same<typeof ours.WorkspaceBusy, typeof designed.WorkspaceBusy>>();
same<Same<typeof ours.CloseFailed, typeof designed.CloseFailed>>();
same<Same<typeof ours.WriteBackConflict, typeof designed.WriteBackConflict>>();
same<Same<typeof ours.WriteBackRefused, typeof designed.WriteBackRefused>>();
same<Same<typeof ours.ChangedSinceApproval, typeof designed.ChangedSinceApproval>>();
same<Same<typeof ours.NotApproved, typeof designed.NotApproved>>();
same<Same<typeof ours.Cancelled, typeof designed.Cancelled>>();
same<Same<typeof ours.Unsupported, typeof designed.Unsupported>>();

// Types.
same<Same<ours.ExecutionTarget, designed.ExecutionTarget>>();
same<Same<ours.Schema<string>, designed.Schema<string>>>();
same<Same<ours.Operation<string>, designed.Operation<string>>>();
same<Same<ours.ProjectConfig, designed.ProjectConfig>>();
same<Same<ours.WorkflowDefinition<string, number>, designed.WorkflowDefinition<string, number>>>();
same<Same<ours.WorkspaceHandle, designed.WorkspaceHandle>>();
same<Same<ours.Change, designed.Change>>();
same<Same<ours.Difference, designed.Difference>>();
same<Same<ours.Agent, designed.Agent>>();
same<Same<ours.ExecResult, designed.ExecResult>>();
same<Same<ours.SessionHandle, designed.SessionHandle>>();
same<Same<ours.Environment, designed.Environment>>();
same<Same<ourHarness.Harness, designedHarness.Harness>>();
same<Same<ourHarness.HarnessAgentSkill, designedHarness.HarnessAgentSkill>>();
same<Same<ourHarness.PermissionMode, designedHarness.PermissionMode>>();
same<Same<ourHarness.AgentOptions, designedHarness.AgentOptions>>();
same<Same<ourLocal.Credential, designedLocal.Credential>>();
same<Same<ourLocal.AgentExecution, designedLocal.AgentExecution>>();
same<Same<ourDocker.DockerResources, designedDocker.DockerResources>>();
same<Same<ourOpenShell.NetworkPolicies, designedOpenShell.NetworkPolicies>>();

// The comparison itself can fail.
// @ts-expect-error: an optional property more
same<Same<ours.Agent, ours.Agent & { readonly more?: string }>>();
// @ts-expect-error: not read-only
same<Same<ours.Agent, { id: string }>>();
// @ts-expect-error: another result
same<Same<typeof ours.defineConfig, (config: ours.ProjectConfig) => void>>();
