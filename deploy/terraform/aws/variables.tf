variable "table_name" {
  description = "The name of the lock table."
  type        = string
}

variable "layout" {
  description = "How a lock is written into an item: belay's own layout, or that of another program."
  type        = string
  default     = "belay"

  validation {
    condition     = contains(["belay", "chatops", "resource", "runvoy", "appregistry", "deployer", "terraform", "awslabs", "dynamolock"], var.layout)
    error_message = "The layout must be one that belay knows: docs/stores/dynamodb.md lists them."
  }
}

variable "bucket_name" {
  description = "The bucket for deployment state; null: none."
  type        = string
  default     = null
}

variable "state_prefix" {
  description = "The prefix of the states in the bucket, literal and without slashes at its ends; empty: the whole bucket."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$", var.state_prefix))
    error_message = "The prefix must be literal (S3 knows no wildcards in a prefix) and must not begin or end with a slash."
  }
}

variable "noncurrent_days" {
  description = "How long S3 keeps the versions that a newer one replaced."
  type        = number
  default     = 90
}

variable "kms_key_arn" {
  description = "A KMS key for the table and the bucket; null: the keys of AWS."
  type        = string
  default     = null
}

variable "deletion_protection" {
  description = "Refuse to delete the table."
  type        = bool
  default     = true
}

variable "alarm_actions" {
  description = "ARNs to notify when an alarm is raised, such as an SNS topic."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of the table and the bucket."
  type        = map(string)
  default     = {}
}
