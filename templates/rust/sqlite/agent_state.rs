{% extends "rust/agent_state.rs" %}

{% block uses %}
use sqlx::FromRow;
{%- endblock %}

{% block derive %}, FromRow{% endblock %}
