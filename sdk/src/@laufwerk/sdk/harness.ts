export interface Harness { readonly program: string }
export interface HarnessAgentSkill {
  readonly name: string;
  readonly description: string;
  readonly content: string;
  readonly files?: { readonly [path: string]: string };
}
export type PermissionMode = "allow-all" | "allow-edits" | "allow-reads";
export interface AgentOptions {
  readonly id?: string;
  readonly harness: Harness;
  readonly instructions?: string;
  /** The default is allow-all. */
  readonly permissionMode?: PermissionMode;
  readonly skills?: readonly HarnessAgentSkill[];
  readonly activeTools?: readonly string[];
}
