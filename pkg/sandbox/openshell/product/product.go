// Package product promises every name that OpenShell gives to something in one
// file, so that a product that is renamed is a file that is changed.
package product

// Name is what people call it.
const Name = "OpenShell"

// Client side: programs, files and variables.
const (
	Program      = "openshell"
	ServiceUnit  = "openshell-gateway.service"
	ConfigDir    = "openshell"      // below the user's configuration
	SystemDir    = "/etc/openshell" // read-only registrations
	ActiveFile   = "active_gateway"
	GatewaysDir  = "gateways"
	MetadataFile = "metadata.json"
	MTLSDir      = "mtls"
	CAFile       = "ca.crt"
	CertFile     = "tls.crt"
	KeyFile      = "tls.key"
	TokenFile    = "oidc_token.json"

	EnvEndpoint  = "OPENSHELL_GATEWAY_ENDPOINT"
	EnvGateway   = "OPENSHELL_GATEWAY"
	EnvWorkspace = "OPENSHELL_WORKSPACE"
	EnvSystemDir = "OPENSHELL_SYSTEM_GATEWAY_DIR"
	EnvInsecure  = "OPENSHELL_GATEWAY_INSECURE"

	DefaultWorkspace = "default"
	DefaultEndpoint  = "https://127.0.0.1:17670"
	// EnvPrefix begins the variables that a request may not set.
	EnvPrefix = "OPENSHELL_"
)

// Commands that people are told to run.
const (
	CommandStatus       = Program + " status"
	CommandAdd          = Program + " gateway add"
	CommandLogin        = Program + " gateway login"
	CommandGateways     = Program + " gateway list"
	CommandSelect       = Program + " gateway select"
	CommandSandboxes    = Program + " sandbox list"
	CommandDelete       = Program + " sandbox delete"
	CommandCertificates = "openshell-gateway generate-certs"
)

// Service is the gRPC service of both generations.
const Service = "openshell.v1.OpenShell"

// Labels that the Docker driver puts on containers.
const (
	LabelManagedBy   = "openshell.ai/managed-by"
	ManagedBy        = "openshell"
	LabelID          = "openshell.ai/sandbox-id"
	LabelName        = "openshell.ai/sandbox-name"
	LabelWorkspace   = "openshell.ai/sandbox-workspace"
	ContainerPrefix  = "openshell-"
	PlaceholderStart = "openshell:resolve:env:" // begins what stands for a secret inside
)

// Inside a sandbox.
const (
	HostAlias     = "host.openshell.internal" // the machine of the gateway
	InjectedProxy = "http://10.200.0.1:3128"  // 0.0.x; 0.1.x names its own
	Home          = "/sandbox"                // workspace of an image without a working directory
	Network       = "openshell-docker"        // bridge of 0.0.x
	Driver        = "docker"
)

// Reserved are the targets at, above and below which nothing can be mounted.
var Reserved = []string{
	"/opt/openshell", "/etc/openshell", "/etc/openshell-tls", "/run/openshell",
	"/run/openshell-sidecar", "/run/netns", "/var/run/netns", "/.openshell/channel",
}

// Settings of a gateway, as its configuration file names them.
const (
	SettingBinds        = "enable_bind_mounts = true in [openshell.drivers.docker]"
	SettingDriverConfig = "allow_driver_config = true in [openshell.drivers.docker]"
	SettingAdmission    = "enabled = false in [openshell.drivers.docker.resource_admission]"
	SettingPlain        = "allow_unauthenticated_users = true in [openshell.gateway.auth]"
)
